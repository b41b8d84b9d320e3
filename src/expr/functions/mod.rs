//! The functions without an exact result, defined once for every device: the same operations, rounded the same way, on the
//! CPU and in CUDA, so that they give the same bits.
//!
//! - [`language`] is what they are written in, `kernels/functions.cu` the same for CUDA;
//! - `coefficients.rs` holds every constant, and `coefficients.py` made it;
//! - [`loops`] runs them over blocks of rows: they have no branches but for large angles, so that loops become vector
//!   instructions.

mod arc;
mod coefficients;
mod exp;
mod hyperbolic;
mod language;
mod log;
mod loops;
mod power;
mod sums;
#[cfg(test)]
pub(super) mod tests;
mod trig;

use std::fmt::Write as _;

use super::program::Op;
use super::words::{Binary, Unary};

pub(super) use loops::{OfOne, OfTwo};
/// One power, for numbers without a dtype.
pub(super) use power::power;

/// What stands before the definitions.
const LANGUAGE: &str = include_str!("../../../kernels/functions.cu");

/// Functions of one operand.
const UNARY: &[Unary] = &[
    Unary::Cbrt,
    Unary::Exp,
    Unary::Exp2,
    Unary::Expm1,
    Unary::Log,
    Unary::Log2,
    Unary::Log10,
    Unary::Log1p,
    Unary::Sin,
    Unary::Cos,
    Unary::Tan,
    Unary::Asin,
    Unary::Acos,
    Unary::Atan,
    Unary::Sinh,
    Unary::Cosh,
    Unary::Tanh,
    Unary::Asinh,
    Unary::Acosh,
    Unary::Atanh,
];

/// Functions of two operands, with their names here.
const BINARY: &[(Binary, &str)] = &[(Binary::Pow, "power"), (Binary::Atan2, "atan2"), (Binary::Hypot, "hypot")];

/// Whether an operation of floats is one of these.
pub(super) fn is_function(op: Op) -> bool {
    match op {
        Op::Unary(op, _) => UNARY.contains(&op),
        Op::Binary(op, ..) => BINARY.iter().any(|(of, _)| *of == op),
        _ => false,
    }
}

/// All of them for CUDA C++, of `f64` and of `f32`: these are computed in `f64` and rounded once.
pub(super) fn cuda() -> String {
    let table = coefficients::TWO_OVER_PI_BITS.map(|word| format!("{word:#x}ull")).join(", ");
    let mut text = LANGUAGE.replace("{0}; // TWO_OVER_PI_BITS", &format!("{{{table}}};"));
    let parts =
        [coefficients::CUDA, sums::CUDA, exp::CUDA, log::CUDA, trig::CUDA, hyperbolic::CUDA, arc::CUDA, power::CUDA];
    text.push_str("namespace overshot {\nnamespace functions {\n#define let const auto\n");
    parts.into_iter().for_each(|part| text.push_str(&part.replace("; ", ";\n")));
    text.push_str("#undef let\n}  // namespace functions\n\n");
    let mut declare = |name: &str, parameters: &str, arguments: &str, wide: &str| {
        for (dtype, arguments) in [("f64", arguments), ("f32", wide)] {
            let parameters = parameters.replace("T", dtype);
            let _ =
                writeln!(text, "OP {dtype} {name}({parameters}) {{ return ({dtype})functions::{name}({arguments}); }}");
        }
    };
    UNARY.iter().for_each(|op| declare(op.name(), "T a", "a", "(f64)a"));
    BINARY.iter().for_each(|(_, name)| declare(name, "T a, T b", "a, b", "(f64)a, (f64)b"));
    text.push_str("#undef OP\n}  // namespace overshot\n");
    text
}
