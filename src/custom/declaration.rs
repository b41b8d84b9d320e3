//! Finds the declaration of a kernel in CUDA C++ and reads its parameters.
//!
//! Only the compiler knows which lines a preprocessor keeps. This module skips lines under `#if 0`. If the other lines
//! declare the kernel in more than one way, it returns an error instead of a guess.

use super::lex::{Token, TokenKind, is_word_part, is_word_start, tokens};
use super::parameter::{self, Parameter};

/// The remedy if the declaration is ambiguous.
const SAY: &str = "give the parameters apart from the text";

/// Returns the parameters of the kernel `entry` in a text of CUDA C++: those in the parentheses after its name.
///
/// # Errors
/// The problem and its remedy.
pub(super) fn of_source(source: &str, entry: &str) -> Result<Vec<Parameter>, String> {
    if !entry.starts_with(is_word_start) || !entry.chars().all(is_word_part) {
        return Err(format!("'{entry}' is no name of a kernel: give the one that stands before its parameters"));
    }
    let tokens = tokens(source);
    let mut scan = Scan { entry, ..Scan::default() };
    scan.run(&tokens)?;
    let Scan { declarations, macros, .. } = scan;
    // A definition has the names of the parameters, which a declaration before it may lack.
    let definitions = declarations.iter().filter(|one| one.is_definition);
    let chosen = definitions.chain(&declarations).next();
    let Some(chosen) = chosen else {
        return Err(format!(
            "it has no kernel '{entry}': check the name, which needs '__global__' before it, or {SAY}"
        ));
    };
    let differs = |other: &&Declaration<'_>| {
        other.is_definition == chosen.is_definition
            && !other.parameters.iter().map(|token| token.text).eq(chosen.parameters.iter().map(|token| token.text))
    };
    if let Some(other) = declarations.iter().find(differs) {
        return Err(format!(
            "it declares '{entry}' in line {} and with other parameters in line {}, and which one is compiled \
             is for the \
             preprocessor to say: leave one, or {SAY}",
            line(source, chosen.start),
            line(source, other.start)
        ));
    }
    if let Some(directive) = chosen.parameters.iter().find(|token| token.kind == TokenKind::Directive) {
        return Err(format!("the parameters of '{entry}' depend on '{}': {SAY}", directive.text.trim_end()));
    }
    if let Some(name) = chosen.parameters.iter().find(|token| macros.contains(&token.text)) {
        return Err(format!(
            "the parameters of '{entry}' use the macro '{}': write what it stands for, or {SAY}",
            name.text
        ));
    }
    if chosen.is_template {
        return Err(format!(
            "'{entry}' is a template: write a kernel that is none, declared extern \"C\", which calls what they share"
        ));
    }
    if !declarations.iter().any(|one| one.is_extern_c) {
        return Err(format!(
            "'{entry}' is not declared extern \"C\" (line {}), so that it has another name in compiled code: write \
             'extern \"C\" __global__ void {entry}(…)'",
            line(source, chosen.start)
        ));
    }
    of_tokens(source, &chosen.parameters)
}

/// Returns the parameters that a text such as `const float *x, float *y, float a` declares.
///
/// # Errors
/// The problem and its remedy.
pub(super) fn of_text(text: &str) -> Result<Vec<Parameter>, String> {
    of_tokens(text, &tokens(text))
}

fn of_tokens(source: &str, tokens: &[Token<'_>]) -> Result<Vec<Parameter>, String> {
    if tokens.is_empty() || matches!(tokens, [only] if only.text == "void") {
        return Ok(vec![]);
    }
    let parameters = tokens.split(|token| token.text == ",").map(|tokens| parameter::parse(source, tokens));
    let parameters: Vec<_> = parameters.collect::<Result<_, _>>()?;
    let twice = parameters.iter().enumerate().find(|(k, one)| parameters[..*k].iter().any(|p| p.name == one.name));
    match twice {
        Some((_, one)) => Err(format!("two parameters are called '{}': rename one", one.name)),
        None => Ok(parameters),
    }
}

fn line(source: &str, start: usize) -> usize {
    source[..start].matches('\n').count() + 1
}

/// A declaration of the kernel, or its definition.
struct Declaration<'t> {
    start: usize,
    parameters: Vec<Token<'t>>,
    is_definition: bool,
    is_extern_c: bool,
    is_template: bool,
}

/// Collects the declarations of a kernel in a text.
#[derive(Default)]
struct Scan<'t> {
    entry: &'t str,
    declarations: Vec<Declaration<'t>>,
    /// Names that the preprocessor replaces.
    macros: Vec<&'t str>,
    /// The conditions around this place, from the outermost to the innermost.
    conditions: Vec<Condition>,
    /// The blocks around this place: whether each is `extern "C" { … }`.
    blocks: Vec<bool>,
    /// The tokens so far of the statement at this place.
    statement: Vec<Token<'t>>,
}

/// An `#if` before its `#endif`.
struct Condition {
    /// Whether the lines of its current part are compiled; `None` if only the preprocessor knows.
    is_compiled: Option<bool>,
    /// Whether an earlier part is compiled; `None` if only the preprocessor knows.
    was_compiled: Option<bool>,
    /// The blocks around the `#if`, with which each of its parts begins.
    blocks: Vec<bool>,
}

impl<'t> Scan<'t> {
    fn run(&mut self, tokens: &[Token<'t>]) -> Result<(), String> {
        let mut place = 0;
        while let Some(&token) = tokens.get(place) {
            place += 1;
            if token.kind == TokenKind::Directive {
                self.directive(token.text);
                continue;
            }
            if self.conditions.iter().any(|condition| condition.is_compiled == Some(false)) {
                continue;
            }
            match token.text {
                "{" => {
                    let is_extern_c = matches!(&*self.statement, [.., a, b] if a.text == "extern" && b.text == "\"C\"");
                    self.blocks.push(is_extern_c);
                    self.statement.clear();
                }
                "}" => {
                    self.blocks.pop();
                    self.statement.clear();
                }
                ";" => self.statement.clear(),
                "(" if self.names_kernel() => {
                    let length = closing(&tokens[place..]).ok_or_else(|| {
                        format!("the parameters of '{}' do not end: close the parenthesis", self.entry)
                    })?;
                    let next = tokens[place + length + 1..].iter().find(|token| token.kind != TokenKind::Directive);
                    self.declare(
                        token.start,
                        &tokens[place..place + length],
                        next.is_some_and(|next| next.text == "{"),
                    );
                    place += length + 1;
                }
                _ => self.statement.push(token),
            }
        }
        Ok(())
    }

    /// Returns whether the statement so far ends with the kernel's name and declares a kernel.
    fn names_kernel(&self) -> bool {
        self.statement.last().is_some_and(|last| last.text == self.entry) && self.says("__global__")
    }

    fn says(&self, word: &str) -> bool {
        self.statement.iter().any(|token| token.text == word)
    }

    fn declare(&mut self, start: usize, parameters: &[Token<'t>], is_definition: bool) {
        let is_extern_c = self.statement.windows(2).any(|two| two[0].text == "extern" && two[1].text == "\"C\"");
        self.declarations.push(Declaration {
            start,
            parameters: parameters.to_vec(),
            is_definition,
            is_extern_c: is_extern_c || self.blocks.contains(&true),
            is_template: self.says("template"),
        });
    }

    fn directive(&mut self, text: &'t str) {
        let words = tokens(text.strip_prefix('#').unwrap_or(text));
        let mut words = words.iter().map(|token| token.text);
        let (what, condition) = (words.next(), [words.next(), words.next()]);
        // Conditions that need no preprocessor.
        let known = match condition {
            [Some("0"), None] => Some(false),
            [Some("1"), None] => Some(true),
            _ => None,
        };
        match what {
            Some("define") => self.macros.extend(condition[0]),
            Some("if") => self.begin(known),
            Some("ifdef" | "ifndef") => self.begin(None),
            Some("elif") => self.turn(known),
            Some("elifdef" | "elifndef") => self.turn(None),
            Some("else") => self.turn(Some(true)),
            Some("endif") => _ = self.conditions.pop(),
            _ => {}
        }
    }

    fn begin(&mut self, is_compiled: Option<bool>) {
        self.conditions.push(Condition { is_compiled, was_compiled: Some(false), blocks: self.blocks.clone() });
    }

    /// Begins the next part of a condition.
    fn turn(&mut self, holds: Option<bool>) {
        let Some(condition) = self.conditions.last_mut() else { return };
        condition.was_compiled = match (condition.was_compiled, condition.is_compiled) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        };
        condition.is_compiled = match (condition.was_compiled, holds) {
            (Some(true), _) | (_, Some(false)) => Some(false),
            (Some(false), Some(true)) => Some(true),
            _ => None,
        };
        self.blocks.clone_from(&condition.blocks);
    }
}

/// Returns the number of tokens before the closing parenthesis.
fn closing(tokens: &[Token<'_>]) -> Option<usize> {
    let mut depth = 1;
    tokens.iter().position(|token| {
        depth += i32::from(token.text == "(") - i32::from(token.text == ")");
        depth == 0
    })
}

#[cfg(test)]
mod tests {
    use super::super::parameter::Kind;
    use super::*;
    use crate::data::Dtype;

    fn pointer(name: &str, dtype: Dtype, elements: usize, is_const: bool) -> Parameter {
        Parameter { name: name.into(), kind: Kind::Pointer { dtype, elements, is_const } }
    }

    fn names(source: &str, entry: &str) -> Result<Vec<String>, String> {
        Ok(of_source(source, entry)?.into_iter().map(|parameter| parameter.name).collect())
    }

    /// A kernel with one parameter.
    fn kernel(name: &str) -> String {
        format!("extern \"C\" __global__ void k(const double *{name}) {{}}\n")
    }

    #[track_caller]
    fn refused(source: &str, words: &[&str]) {
        let error = of_source(source, "k").expect_err(source);
        assert!(words.iter().all(|word| error.contains(word)), "{source}: {error}");
    }

    #[test]
    fn parameters_of_all_kinds() {
        let text = "const float *__restrict__ x, double (*paths)[200], float a, unsigned long long n, const float4* v,
                    const __half2 *h, nv_bfloat162 (*w)[8], int m[][3], const unsigned char b[], size_t k, bool *ok,
                    float const *y, float *const z, long long rows, size_t first_row,
                    unsigned long long *num_selected";
        assert_eq!(
            of_text(text).unwrap(),
            [
                pointer("x", Dtype::F32, 1, true),
                pointer("paths", Dtype::F64, 200, false),
                Parameter { name: "a".into(), kind: Kind::Value(Dtype::F32) },
                Parameter { name: "n".into(), kind: Kind::Value(Dtype::U64) },
                pointer("v", Dtype::F32, 4, true),
                pointer("h", Dtype::F16, 2, true),
                pointer("w", Dtype::Bf16, 16, false),
                pointer("m", Dtype::I32, 3, false),
                pointer("b", Dtype::U8, 1, true),
                Parameter { name: "k".into(), kind: Kind::Value(Dtype::U64) },
                pointer("ok", Dtype::Bool, 1, false),
                pointer("y", Dtype::F32, 1, true),
                pointer("z", Dtype::F32, 1, false),
                Parameter { name: "rows".into(), kind: Kind::Value(Dtype::I64) },
                Parameter { name: "first_row".into(), kind: Kind::Value(Dtype::U64) },
                pointer("num_selected", Dtype::U64, 1, false),
            ]
        );
        assert_eq!(of_text(" void "), Ok(vec![]));
        assert_eq!(of_text("/* none */"), Ok(vec![]));
    }

    #[test]
    fn types_of_all_spellings() {
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
            ("__half", Dtype::F16),
            ("__nv_bfloat16", Dtype::Bf16),
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
        assert_eq!(names(source, "mul").unwrap(), ["a", "b", "c"]);
        assert!(of_source(source, "mul_one").unwrap_err().contains("no kernel 'mul_one'"));
        refused("__global__ void k(int a", &["close the parenthesis"]);
    }

    #[test]
    fn what_it_cannot_read_is_an_error() {
        for text in [
            "T *x",
            "float",
            "float **x",
            "float *x, float *x",
            "quarter x",
            "float4 x",
            "__half4 *x",
            "float x[3]",
            "float (*x)[0]",
            "float (*x)[99999999999999999999]",
            "float4 (*x)[9223372036854775807]",
            "a<b> *x",
            "float *x,",
            "float *x = \"\"",
            "\n#if A\nfloat *x",
        ] {
            assert!(of_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_that_are_none_and_text_at_the_end_are_errors() {
        for entry in ["", " ", "k(", "1k", "*"] {
            assert!(of_source(&kernel("x"), entry).unwrap_err().contains("no name of a kernel"), "{entry}");
        }
        refused("#define F k", &["no kernel 'k'"]);
        refused("k", &["no kernel 'k'"]);
        refused("__global__ k", &["no kernel 'k'"]);
        assert_eq!(names(&format!("#define k² 1\nint k²;\n{}", kernel("x")), "k").unwrap(), ["x"]);
    }

    #[test]
    fn literals_do_not_hide_the_kernel() {
        for before in [
            "__device__ const char q = '\"';\n",
            "__device__ const char *q = \"a\\\"b\";\n",
            "__device__ const char *q = R\"(\" ; } __global__ void k(float *no)\n)\";\n",
            "__device__ const int q = 1'000; // don't\n",
            "#error don't\n",
        ] {
            assert_eq!(names(&format!("{before}{}", kernel("x")), "k").unwrap(), ["x"], "{before}");
        }
    }

    #[test]
    fn lines_that_are_never_compiled_do_not_count() {
        for (source, right) in [
            (format!("#if 0\n{}#endif\n{}", kernel("no"), kernel("x")), "x"),
            (format!("#if 0\n{}#else\n{}#endif", kernel("no"), kernel("x")), "x"),
            (format!("#if 1\n{}#else\n{}#endif", kernel("x"), kernel("no")), "x"),
            (format!("#if 0\n#if A\n{}#else\n{0}#endif\n#elif 1\n{}#else\n{0}#endif", kernel("no"), kernel("x")), "x"),
        ] {
            assert_eq!(names(&source, "k").unwrap(), [right], "{source}");
        }
    }

    #[test]
    fn what_the_preprocessor_decides_is_not_guessed() {
        let (x, y) = (kernel("x"), kernel("y"));
        refused(&format!("#ifdef A\n{x}#else\n{y}#endif"), &["line 2", "line 4", "preprocessor"]);
        refused(&format!("#if A\n{x}#endif\n#if !(A)\n{y}#endif"), &["line 2", "line 5"]);
        refused("extern \"C\" __global__ void k(float *x\n#if A\n, float *y\n#endif\n) {}", &["#if A"]);
        refused("#define T float\nextern \"C\" __global__ void k(T *x) {}", &["macro 'T'"]);
        refused("#define float double\nextern \"C\" __global__ void k(float *x) {}", &["macro 'float'"]);
        // Where all agree, there is nothing to decide.
        assert_eq!(names(&format!("#ifndef GUARD\n#define GUARD\n{x}#endif"), "k").unwrap(), ["x"]);
        assert_eq!(names(&format!("#ifdef A\n{x}#else\n{x}#endif"), "k").unwrap(), ["x"]);
    }

    #[test]
    fn a_definition_counts_more_than_declarations() {
        let source = "extern \"C\" __global__ void k(const double *, double *);\n\
                      __global__ void k(const double *x, double *y) {}";
        assert_eq!(names(source, "k").unwrap(), ["x", "y"]);
    }

    #[test]
    fn a_kernel_without_extern_c_is_an_error() {
        refused("__global__ void k(float *x) {}", &["extern \"C\"", "line 1"]);
        refused("extern \"C\" { int a; }\n__global__ void k(float *x) {}", &["extern \"C\"", "line 2"]);
        refused("template <class T> __global__ void k(T *x) {}", &["template"]);
        for source in [
            "extern \"C\" { __device__ int f() { return 1; }\n__global__ void k(float *x) {} }",
            "#ifdef __cplusplus\nextern \"C\" {\n#endif\n__global__ void k(float *x) {}\n#ifdef __cplusplus\n}\n#endif",
            "extern \"C\" {\n#if A\nvoid f() {\n#else\nvoid f(int) {\n#endif\n}\n__global__ void k(float *x) {} }",
            "__global__ extern \"C\" void k(float *x) {}",
        ] {
            assert_eq!(names(source, "k").unwrap(), ["x"], "{source}");
        }
    }

    #[test]
    fn parameters_that_mean_something_have_one_type() {
        for (text, words) in [
            ("int rows", ["'int rows'", "long long rows"]),
            ("unsigned rows", ["'unsigned rows'", "long long rows"]),
            ("double rows", ["'double rows'", "long long rows"]),
            ("const float *rows", ["'const float *rows'", "rename"]),
            ("int first_row", ["'int first_row'", "long long first_row"]),
            (
                "unsigned long long num_selected",
                ["'unsigned long long num_selected'", "unsigned long long *num_selected"],
            ),
            ("unsigned *num_selected", ["'unsigned *num_selected'", "unsigned long long *num_selected"]),
            ("const unsigned long long *num_selected", ["num_selected'", "unsigned long long *num_selected"]),
        ] {
            let error = of_text(text).unwrap_err();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }
}
