//! The parameters of a kernel, and their declarations in C.

use super::lex::{Token, TokenKind, is_word_start};
use crate::data::Dtype;
use crate::device::kernel::Declared;

/// The parameter that receives the number of rows of a launch.
pub(super) const ROWS: &str = "rows";
/// The parameter that receives the number of the first row of a launch.
pub(super) const FIRST_ROW: &str = "first_row";
/// The parameter that receives the number of rows of the job.
pub(super) const TOTAL_ROWS: &str = "total_rows";
/// The parameter to which each block writes the number of rows that it selected.
pub(super) const NUM_SELECTED: &str = "num_selected";

/// One parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// Its name.
    pub(crate) name: String,
    /// What it is.
    pub(crate) kind: Kind,
}

/// The kind of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A pointer to rows of so many elements; read only if it is to `const`.
    Pointer {
        /// The dtype of an element.
        dtype: Dtype,
        /// The elements of a row.
        elements: usize,
        /// Whether it is to `const`.
        is_const: bool,
    },
    /// A value.
    Value(Dtype),
}

impl Kind {
    /// Returns the size of a row behind a pointer. `None` for a value, and if the size overflows.
    pub(super) fn row_bytes(self) -> Option<usize> {
        match self {
            Kind::Pointer { dtype, elements, .. } => dtype.size().checked_mul(elements),
            Kind::Value(_) => None,
        }
    }
}

/// Returns the parameter that tokens of `source` declare.
///
/// # Errors
/// The problem and its remedy.
pub(super) fn parse(source: &str, tokens: &[Token<'_>]) -> Result<Parameter, String> {
    let text = match tokens {
        [first, .., last] => &source[first.start..last.start + last.text.len()],
        [only] => only.text,
        [] => "",
    };
    let unknown = || {
        format!(
            "cannot read the parameter '{text}': declare it with plain C types, as a pointer such as 'const float *x', \
             rows of several elements as 'const float (*x)[16]', or a value such as 'float a'"
        )
    };
    if tokens.iter().any(|token| matches!(token.kind, TokenKind::Literal | TokenKind::Directive)) {
        return Err(unknown());
    }
    let tokens: Vec<&str> = tokens.iter().map(|token| token.text).collect();
    // Qualifiers have no effect here, except `const` before the star or of an array.
    let is_const = tokens.iter().take_while(|token| **token != "*").any(|token| *token == "const");
    let is_qualifier = |token: &str| matches!(token, "const" | "volatile" | "__restrict__" | "__restrict" | "restrict");
    let tokens: Vec<&str> = tokens.into_iter().filter(|token| !is_qualifier(token)).collect();
    let split = tokens.iter().position(|token| !is_type_word(token)).ok_or_else(unknown)?;
    let (words, declarator) = tokens.split_at(split);
    let (dtype, vector) = dtype(words).ok_or_else(unknown)?;
    let (name, elements) = match *declarator {
        [name] if is_word(name) && vector == 1 => (name, None),
        ["*", name] | [name, "[", "]"] => (name, Some(1)),
        ["(", "*", name, ")", "[", count, "]"] | [name, "[", "]", "[", count, "]"] => {
            (name, Some(count.parse().ok().filter(|count| *count > 0).ok_or_else(unknown)?))
        }
        _ => return Err(unknown()),
    };
    if !is_word(name) {
        return Err(unknown());
    }
    let kind = match elements {
        None => Kind::Value(dtype),
        Some(elements) => {
            let elements = vector.checked_mul(elements).ok_or_else(unknown)?;
            Kind::Pointer { dtype, elements, is_const }
        }
    };
    let parameter = Parameter { name: name.into(), kind };
    parameter.check_name(text)?;
    Ok(parameter)
}

impl Parameter {
    /// Returns the declaration that the compiled kernel is compared with.
    pub(super) fn declared(&self) -> Declared {
        let bytes = match self.kind {
            Kind::Pointer { .. } => size_of::<u64>(),
            Kind::Value(dtype) => dtype.size(),
        };
        Declared { name: self.name.clone(), bytes }
    }

    /// Checks that a parameter with a reserved name has the type of that name. Otherwise an `int rows` would be a value
    /// that the caller sets, and the kernel would access rows beyond the end of a chunk.
    fn check_name(&self, text: &str) -> Result<(), String> {
        let is_count = matches!(self.kind, Kind::Value(Dtype::I64 | Dtype::U64));
        let kept = Kind::Pointer { dtype: Dtype::U64, elements: 1, is_const: false };
        let (is_right, meaning, right) = match self.name.as_str() {
            ROWS => (is_count, "the number of rows of a launch", "long long rows"),
            FIRST_ROW => (is_count, "the number of the first row of a launch", "long long first_row"),
            TOTAL_ROWS => (is_count, "the number of rows of the job", "long long total_rows"),
            NUM_SELECTED => (self.kind == kept, "how many rows each block keeps", "unsigned long long *num_selected"),
            _ => return Ok(()),
        };
        match is_right {
            true => Ok(()),
            false => Err(format!(
                "the parameter '{text}': '{}' is {meaning}, so declare it '{right}', or rename it",
                self.name
            )),
        }
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(is_word_start)
}

fn is_type_word(token: &str) -> bool {
    matches!(token, "unsigned" | "signed" | "char" | "short" | "int" | "long") || dtype(&[token]).is_some()
}

/// Returns the dtype of a C type, and the number of elements of one value. A `long` has 64 bits, as on Linux.
fn dtype(words: &[&str]) -> Option<(Dtype, usize)> {
    match words {
        [word] => plain(word).or_else(|| integer(words)).map(|dtype| (dtype, 1)).or_else(|| vector(word)),
        _ => integer(words).map(|dtype| (dtype, 1)),
    }
}

fn plain(word: &str) -> Option<Dtype> {
    Some(match word {
        "bool" => Dtype::Bool,
        "__half" | "half" => Dtype::F16,
        "__nv_bfloat16" | "nv_bfloat16" => Dtype::Bf16,
        "float" => Dtype::F32,
        "double" => Dtype::F64,
        "int8_t" => Dtype::I8,
        "int16_t" => Dtype::I16,
        "int32_t" => Dtype::I32,
        "int64_t" | "ptrdiff_t" => Dtype::I64,
        "uint8_t" => Dtype::U8,
        "uint16_t" => Dtype::U16,
        "uint32_t" => Dtype::U32,
        "uint64_t" | "size_t" => Dtype::U64,
        _ => return None,
    })
}

/// Returns the dtype and the number of elements of a CUDA vector type without padding, such as `float4`.
fn vector(word: &str) -> Option<(Dtype, usize)> {
    let last = word.chars().next_back()?;
    let count = last.to_digit(10).filter(|count| (1..=4).contains(count))?;
    let dtype = match word.strip_suffix(last)? {
        "float" => Dtype::F32,
        "double" => Dtype::F64,
        "char" => Dtype::I8,
        "uchar" => Dtype::U8,
        "short" => Dtype::I16,
        "ushort" => Dtype::U16,
        "int" => Dtype::I32,
        "uint" => Dtype::U32,
        "longlong" | "long" => Dtype::I64,
        "ulonglong" | "ulong" => Dtype::U64,
        // CUDA has pairs of these only.
        "__half" | "half" if count == 2 => Dtype::F16,
        "__nv_bfloat16" | "nv_bfloat16" if count == 2 => Dtype::Bf16,
        _ => return None,
    };
    Some((dtype, count as usize))
}

/// Returns the dtype of `unsigned`, `signed`, `char`, `short`, `int` and `long` in any order.
fn integer(words: &[&str]) -> Option<Dtype> {
    let count = |word: &str| words.iter().filter(|other| **other == word).count();
    let unsigned = match (count("unsigned"), count("signed")) {
        (0, 0 | 1) => false,
        (1, 0) => true,
        _ => return None,
    };
    let known = ["unsigned", "signed", "char", "short", "int", "long"].iter().map(|word| count(word)).sum::<usize>();
    if words.is_empty() || known != words.len() || count("int") > 1 {
        return None;
    }
    let signed = match (count("char"), count("short"), count("long"), count("int")) {
        (1, 0, 0, 0) => Dtype::I8,
        (0, 1, 0, _) => Dtype::I16,
        (0, 0, 0, _) => Dtype::I32,
        (0, 0, 1 | 2, _) => Dtype::I64,
        _ => return None,
    };
    Some(match (unsigned, signed) {
        (false, dtype) => dtype,
        (true, Dtype::I8) => Dtype::U8,
        (true, Dtype::I16) => Dtype::U16,
        (true, Dtype::I32) => Dtype::U32,
        (true, _) => Dtype::U64,
    })
}
