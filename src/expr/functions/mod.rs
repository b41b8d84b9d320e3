//! The functions without an exact result, defined once for every device: the same operations, rounded the same way, on the
//! CPU and in CUDA, so that they give the same bits.
//!
//! The largest errors seen of 50 000 to 440 000 points each, in units of the last place, against mpmath; where it is 0.7 or
//! more for `exp`, `exp2` and `power`, the result is subnormal and rounded twice:
//! `acos` 0.60, `acosh` 0.54, `asin` 0.61, `asinh` 0.56, `atan` 0.84, `atan2` 0.64, `atanh` 0.56, `cbrt` 0.50,
//! `cos` 0.69, `cosh` 0.62, `exp` 0.76, `exp2` 0.75, `expm1` 0.79, `hypot` 0.68, `log` 0.56, `log10` 0.55,
//! `log1p` 0.56, `log2` 0.58, `power` 0.76, `sin` 0.70, `sinh` 0.70, `tan` 0.75, `tanh` 0.66.
//! `cargo test --lib accuracy -- --nocapture` shows those of `tests/reference.txt`, the worst of these points among them.
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

use super::ir::Op;
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
