//! The parameters of a kernel, as its C declaration says them.

use crate::data::Dtype;

/// One parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// What a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A pointer to rows of so many elements; read only if it is to `const`.
    Pointer { dtype: Dtype, elements: usize, is_const: bool },
    /// A value.
    Value(Dtype),
}

/// The parameters of the kernel `entry` in a text of CUDA C++: what stands in the parentheses behind its name.
///
/// # Errors
/// What is wrong, and what to do.
pub(crate) fn of_source(source: &str, entry: &str) -> Result<Vec<Parameter>, String> {
    let code = without_comments(source);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let found = code.match_indices(entry).find_map(|(at, _)| {
        let (before, behind) = (&code[..at], code[at + entry.len()..].trim_start());
        let declaration = before.rsplit([';', '{', '}']).next().unwrap_or_default();
        let whole = !before.ends_with(is_name) && behind.starts_with('(');
        (whole && declaration.contains("__global__")).then_some(&behind[1..])
    });
    let Some(parameters) = found else {
        return Err(format!("it has no kernel '{entry}': check the name, which needs '__global__' before it"));
    };
    let mut depth = 1;
    let end = parameters.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    });
    match end {
        Some(end) => of_text(&parameters[..end]),
        None => Err(format!("the parameters of '{entry}' do not end: close the parenthesis")),
    }
}

/// The parameters that a text such as `const float *x, float *y, float a` declares.
///
/// # Errors
/// What is wrong, and what to do.
pub(crate) fn of_text(text: &str) -> Result<Vec<Parameter>, String> {
    let text = without_comments(text);
    if text.trim().is_empty() || text.trim() == "void" {
        return Ok(vec![]);
    }
    let parameters: Vec<_> = text.split(',').map(parameter).collect::<Result<_, _>>()?;
    let twice = parameters.iter().enumerate().find(|(k, one)| parameters[..*k].iter().any(|p| p.name == one.name));
    match twice {
        Some((_, one)) => Err(format!("two parameters are called '{}': rename one", one.name)),
        None => Ok(parameters),
    }
}

fn parameter(text: &str) -> Result<Parameter, String> {
    let unknown = || {
        format!(
            "cannot read the parameter '{}': declare it with plain C types, as a pointer such as 'const float *x', rows of \
             several elements as 'const float (*x)[16]', or a value such as 'float a'",
            text.trim()
        )
    };
    let tokens = tokens(text).ok_or_else(unknown)?;
    // Qualifiers say nothing here, except for `const` before the star.
    let star = tokens.iter().position(|token| *token == "*");
    let is_const = tokens[..star.unwrap_or(0)].contains(&"const");
    let is_qualifier = |token: &str| matches!(token, "const" | "volatile" | "__restrict__" | "__restrict" | "restrict");
    let tokens: Vec<&str> = tokens.into_iter().filter(|token| !is_qualifier(token)).collect();
    let split = tokens.iter().position(|token| !is_type_word(token)).ok_or_else(unknown)?;
    let (words, declarator) = tokens.split_at(split);
    let (dtype, vector) = dtype(words).ok_or_else(unknown)?;
    let (name, elements) = match *declarator {
        [name] if is_word(name) => {
            let kind = (vector == 1).then_some(Kind::Value(dtype)).ok_or_else(unknown)?;
            return Ok(Parameter { name: name.into(), kind });
        }
        ["*", name] | [name, "[", "]"] => (name, 1),
        ["(", "*", name, ")", "[", count, "]"] | [name, "[", "]", "[", count, "]"] => {
            (name, count.parse().ok().filter(|count| *count > 0).ok_or_else(unknown)?)
        }
        _ => return Err(unknown()),
    };
    if !is_word(name) {
        return Err(unknown());
    }
    let is_const = is_const || (star.is_none() && text.split_whitespace().any(|word| word == "const"));
    let elements = vector.checked_mul(elements).ok_or_else(unknown)?;
    Ok(Parameter { name: name.into(), kind: Kind::Pointer { dtype, elements, is_const } })
}

fn tokens(text: &str) -> Option<Vec<&str>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '*' | '(' | ')' | '[' | ']' => 1,
            c if c.is_ascii_alphanumeric() || c == '_' => {
                rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())
            }
            _ => return None,
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    Some(tokens)
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

fn is_type_word(token: &str) -> bool {
    matches!(token, "unsigned" | "signed" | "char" | "short" | "int" | "long") || dtype(&[token]).is_some()
}

/// The dtype of a C type, and how many elements one of its values has. A `long` has 64 bits, as on Linux.
fn dtype(words: &[&str]) -> Option<(Dtype, usize)> {
    match words {
        [word] => plain(word).or_else(|| integer(words)).map(|dtype| (dtype, 1)).or_else(|| vector(word)),
        _ => integer(words).map(|dtype| (dtype, 1)),
    }
}

fn plain(word: &str) -> Option<Dtype> {
    Some(match word {
        "bool" => Dtype::Bool,
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

/// CUDA's vectors, such as `float4`: so many elements without padding.
fn vector(word: &str) -> Option<(Dtype, usize)> {
    let count = word.chars().next_back()?.to_digit(10).filter(|count| (1..=4).contains(count))?;
    let dtype = match &word[..word.len() - 1] {
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
        _ => return None,
    };
    Some((dtype, count as usize))
}

/// `unsigned`, `signed`, `char`, `short`, `int` and `long` in any order.
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

/// The text with comments and string literals blanked out.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.find("*/").map_or(rest.len(), |end| end + 4)
        } else if c == '"' {
            rest[1..].find('"').map_or(rest.len(), |end| end + 2)
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        out.push(' ');
        rest = &rest[skip..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(name: &str, dtype: Dtype, elements: usize, is_const: bool) -> Parameter {
        Parameter { name: name.into(), kind: Kind::Pointer { dtype, elements, is_const } }
    }

    #[test]
    fn parameters_of_all_kinds() {
        let text = "const float *__restrict__ x, double (*paths)[200], float a, unsigned long long n, const float4* v,
                    int m[][3], const unsigned char b[], size_t k, bool *ok, float const *y";
        assert_eq!(
            of_text(text).unwrap(),
            [
                pointer("x", Dtype::F32, 1, true),
                pointer("paths", Dtype::F64, 200, false),
                Parameter { name: "a".into(), kind: Kind::Value(Dtype::F32) },
                Parameter { name: "n".into(), kind: Kind::Value(Dtype::U64) },
                pointer("v", Dtype::F32, 4, true),
                pointer("m", Dtype::I32, 3, false),
                pointer("b", Dtype::U8, 1, true),
                Parameter { name: "k".into(), kind: Kind::Value(Dtype::U64) },
                pointer("ok", Dtype::Bool, 1, false),
                pointer("y", Dtype::F32, 1, true),
            ]
        );
        assert_eq!(of_text(" void "), Ok(vec![]));
    }

    #[test]
    fn integers_of_all_spellings() {
        for (text, dtype) in [
            ("char", Dtype::I8),
            ("unsigned char", Dtype::U8),
            ("short int", Dtype::I16),
            ("unsigned short", Dtype::U16),
            ("int", Dtype::I32),
            ("unsigned", Dtype::U32),
            ("long", Dtype::I64),
            ("long long int", Dtype::I64),
            ("unsigned long long", Dtype::U64),
            ("int64_t", Dtype::I64),
            ("uint8_t", Dtype::U8),
        ] {
            assert_eq!(of_text(&format!("{text} x")).unwrap()[0].kind, Kind::Value(dtype), "{text}");
        }
    }

    #[test]
    fn the_kernel_is_found_among_others() {
        let source = r#"
            // __global__ void mul(int no)
            #define X "mul("
            __device__ float mul_one(float a) { return a; }
            extern "C" __global__ void __launch_bounds__(256)
            mul(const float *a, /* the other */ const float *b,
                float *c) { c[0] = mul_one(a[0]); mul(1); }"#;
        let names: Vec<_> = of_source(source, "mul").unwrap().into_iter().map(|p| p.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(of_source(source, "mul_one").unwrap_err().contains("no kernel 'mul_one'"));
        assert!(of_source("__global__ void f(int a", "f").unwrap_err().contains("close the parenthesis"));
    }

    #[test]
    fn what_it_cannot_read_is_an_error() {
        for text in [
            "T *x",
            "float",
            "float **x",
            "float *x, float *x",
            "half x",
            "float4 x",
            "float x[3]",
            "float (*x)[0]",
            "a<b> *x",
        ] {
            assert!(of_text(text).is_err(), "{text}");
        }
    }
}
