//! Declarations of kernels in CUDA C++. The input is a text, or, after a `~`, the choices from which a declaration
//! with known parameters is written, among comments, literals and directives that must not hide it.
#![no_main]

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use overshot::Dtype;
use overshot::kernel::CustomKernel;
use overshot::testing::fuzz::{ParameterKind, parameters, token_ranges};

fuzz_target!(|data: &[u8]| {
    if let Some(choices) = data.strip_prefix(b"~") {
        let _ = check_written(&mut Unstructured::new(choices));
    } else {
        check_text(&String::from_utf8_lossy(data));
    }
});

type Parameter = (String, ParameterKind);

fn check_text(text: &str) {
    let tokens = token_ranges(text);
    let mut end = 0;
    for token in &tokens {
        assert!(token.start >= end && token.end > token.start, "tokens overlap");
        end = token.end;
    }
    assert!(text.get(end..).is_some());
    // Every name before a parenthesis may be a kernel.
    let called = tokens.windows(2).filter(|two| &text[two[1].clone()] == "(").map(|two| &text[two[0].clone()]);
    for entry in called.take(4).chain(["k"]) {
        check_entry(text, entry);
    }
}

fn check_entry(text: &str, entry: &str) {
    // SAFETY: the kernel is not launched.
    let kernel = unsafe { CustomKernel::cuda("fuzz.cu", text, entry) };
    let read = match parameters(text, entry) {
        Ok(read) => read,
        Err(problem) => {
            assert!(!problem.is_empty() && kernel.is_err());
            return;
        }
    };
    let call = kernel.expect("a text with a declaration").call();
    for (k, (name, kind)) in read.iter().enumerate() {
        assert!(read[..k].iter().all(|(other, _)| other != name), "two parameters have the same name");
        assert!(!name.is_empty() && token_ranges(name).len() == 1, "the name is not one word: {name:?}");
        let value = match *kind {
            ParameterKind::Value(dtype) => Some(dtype),
            ParameterKind::Pointer { elements, .. } => {
                assert!(elements > 0);
                None
            }
        };
        assert_eq!(call.value_type(name), value);
        let is_const = matches!(kind, ParameterKind::Pointer { is_const: true, .. });
        assert_eq!(call.input_names().any(|other| other == name), is_const);
        assert!(may_be(name, *kind), "{name} is {kind:?}");
    }
    // Comments around a text change nothing.
    let more = format!("/* ' */ // \" {{\n{text}\n// k(");
    assert_eq!(parameters(&more, entry).as_ref(), Ok(&read));
    // The plainest declaration of the same parameters is read as the same.
    let plain: Vec<String> = read.iter().map(plain).collect();
    let plain = format!("extern \"C\" __global__ void k({}) {{}}", plain.join(", "));
    assert_eq!(parameters(&plain, "k"), Ok(read), "{plain}");
}

/// Whether a parameter of this name may be of this kind: some names mean something.
fn may_be(name: &str, kind: ParameterKind) -> bool {
    match name {
        "rows" | "first_row" | "total_rows" => matches!(kind, ParameterKind::Value(Dtype::I64 | Dtype::U64)),
        "num_selected" => kind == pointer(Dtype::U64, 1, false),
        _ => true,
    }
}

fn pointer(dtype: Dtype, elements: usize, is_const: bool) -> ParameterKind {
    ParameterKind::Pointer { dtype, elements, is_const }
}

fn plain((name, kind): &Parameter) -> String {
    match *kind {
        ParameterKind::Value(dtype) => format!("{} {name}", spellings(dtype)[0]),
        ParameterKind::Pointer { dtype, elements, is_const } => {
            format!("{}{} (*{name})[{elements}]", if is_const { "const " } else { "" }, spellings(dtype)[0])
        }
    }
}

fn spellings(dtype: Dtype) -> &'static [&'static str] {
    match dtype {
        Dtype::Bool => &["bool"],
        Dtype::I8 => &["char", "signed char", "int8_t", "char signed"],
        Dtype::I16 => &["short", "short int", "signed short", "int16_t", "int short signed"],
        Dtype::I32 => &["int", "signed", "int signed", "int32_t"],
        Dtype::I64 => &["long long", "long", "long int", "long signed int long", "int64_t", "ptrdiff_t"],
        Dtype::U8 => &["unsigned char", "uint8_t", "char unsigned"],
        Dtype::U16 => &["unsigned short", "uint16_t", "short unsigned int"],
        Dtype::U32 => &["unsigned", "unsigned int", "uint32_t"],
        Dtype::U64 => &["unsigned long long", "size_t", "uint64_t", "long unsigned", "long long unsigned int"],
        Dtype::F16 => &["__half", "half"],
        Dtype::Bf16 => &["__nv_bfloat16", "nv_bfloat16"],
        Dtype::F32 => &["float"],
        Dtype::F64 => &["double"],
        dtype => panic!("no spelling of {dtype}"),
    }
}

/// CUDA's vectors have these names before their length.
fn vector(dtype: Dtype) -> Option<&'static str> {
    Some(match dtype {
        Dtype::I8 => "char",
        Dtype::U8 => "uchar",
        Dtype::I16 => "short",
        Dtype::U16 => "ushort",
        Dtype::I32 => "int",
        Dtype::U32 => "uint",
        Dtype::I64 => "longlong",
        Dtype::U64 => "ulonglong",
        Dtype::F16 => "__half",
        Dtype::Bf16 => "__nv_bfloat16",
        Dtype::F32 => "float",
        Dtype::F64 => "double",
        _ => return None,
    })
}

/// What may stand between two tokens.
const BLANKS: [&str; 7] = [" ", "\n", "\t ", "/* ' \" */", " // \" ) ' \n", "\\\n", "\r\n"];
/// What may stand before and behind the kernel `k`.
const OTHERS: [&str; 16] = [
    "#if 0\nextern \"C\" __global__ void k(int no) {}\n#endif\n",
    "#if 1\nint one;\n#else\nextern \"C\" __global__ void k(int no) {}\n#endif\n",
    "#ifdef A\n#define B 1\n#elif defined(C)\n#endif\n",
    "#define CALL(a, b) \\\n  a(b) \\\n  ;\n",
    "// __global__ void k(int no) {}\n",
    "/* extern \"C\" __global__ void k(int no) {} */",
    "__device__ const char *text = \"} __global__ void k(int no) {\\\"\";\n",
    "__device__ const char quote = '\"';\n",
    "__device__ const char *raw = R\"x(\" __global__ void k(int no) {} )\" )x\";\n",
    "__device__ float f(float a) { if (a > 0) { return a; } return -a; }\n",
    "extern \"C\" __global__ void other(float *y, long long rows) { y[0] = rows; }\n",
    "namespace n { struct S { int k; }; }\n",
    "template <class T> __device__ T g(T a) { return k(a); }\n",
    "__device__ const int big = 1'000'000;\n",
    "extern \"C\" { __device__ int h() { return 1; } }\n",
    "#error don't\n",
];
const NAMES: [&str; 13] =
    ["x", "y", "a", "k", "_b", "$c", "é", "in0", "rows", "first_row", "total_rows", "num_selected", "R"];

/// Writes a declaration of known parameters and reads it.
fn check_written(u: &mut Unstructured<'_>) -> Result<()> {
    let (mut expected, mut tokens): (Vec<Parameter>, Vec<String>) = (vec![], vec![]);
    // A name that means something, with another type than goes with it.
    let mut wrong = None;
    for _ in 0..u.int_in_range(0..=6)? {
        let name = *u.choose(&NAMES)?;
        if expected.iter().any(|(other, _)| other == name) {
            continue;
        }
        if !expected.is_empty() {
            tokens.push(",".into());
        }
        let any = if u.arbitrary()? {
            ParameterKind::Value(*u.choose(Dtype::ALL)?)
        } else {
            pointer(*u.choose(Dtype::ALL)?, *u.choose(&[1, 1, 2, 3, 4, 16, 1000])?, u.arbitrary()?)
        };
        let is_wrong = !may_be(name, any) && u.ratio(1, 16)?;
        wrong = wrong.or(is_wrong.then_some(name));
        let kind = match name {
            _ if is_wrong => any,
            "rows" | "first_row" | "total_rows" => ParameterKind::Value(*u.choose(&[Dtype::I64, Dtype::U64])?),
            "num_selected" => pointer(Dtype::U64, 1, false),
            _ => any,
        };
        declare(u, name, kind, &mut tokens)?;
        expected.push((name.to_owned(), kind));
    }
    if expected.is_empty() && u.arbitrary()? {
        tokens.push("void".into());
    }
    let (mut head, mut text) = (vec!["extern", "\"C\"", "__global__", "void"], String::new());
    if u.arbitrary()? {
        head = vec!["__global__", "extern", "\"C\"", "void", "__launch_bounds__", "(", "256", ")"];
    }
    head.extend(["k", "("]);
    for _ in 0..u.int_in_range(0..=4)? {
        text += u.choose(&OTHERS)?;
    }
    for token in head.into_iter().map(str::to_owned).chain(tokens).chain([")".into()]) {
        text += u.choose(&BLANKS)?;
        text += &token;
    }
    text += *u.choose(&[" {}\n", "\n{ if (1) { k; } }\n", ";\n"])?;
    for _ in 0..u.int_in_range(0..=2)? {
        text += u.choose(&OTHERS)?;
    }
    match wrong {
        None => assert_eq!(parameters(&text, "k"), Ok(expected), "{text}"),
        Some(name) => {
            let problem = parameters(&text, "k").expect_err(&text);
            assert!(problem.contains(&format!("'{name}' is ")), "{problem}\n{text}");
        }
    }
    check_text(&text);
    Ok(())
}

/// Writes one declaration of a parameter.
fn declare(u: &mut Unstructured<'_>, name: &str, kind: ParameterKind, tokens: &mut Vec<String>) -> Result<()> {
    let (dtype, elements, is_const) = match kind {
        ParameterKind::Value(dtype) => (dtype, None, u.arbitrary()?),
        ParameterKind::Pointer { dtype, elements, is_const } => (dtype, Some(elements), is_const),
    };
    let mut declared = elements;
    let mut words: Vec<String> = u.choose(spellings(dtype))?.split(' ').map(str::to_owned).collect();
    if let (Some(own), Some(prefix)) = (elements, vector(dtype)) {
        // CUDA has pairs of halves only.
        let is_half = matches!(dtype, Dtype::F16 | Dtype::Bf16);
        let lengths: Vec<usize> = (1..=4).filter(|n| own % n == 0 && (!is_half || *n == 2)).collect();
        if !lengths.is_empty() && u.arbitrary()? {
            let length = *u.choose(&lengths)?;
            words = vec![format!("{prefix}{length}")];
            declared = Some(own / length);
        }
    }
    if is_const {
        let at = u.int_in_range(0..=words.len())?;
        words.insert(at, "const".into());
    }
    if u.ratio(1, 8)? {
        words.push("volatile".into());
    }
    let restrict = u.ratio(1, 4)?;
    let star = ["*"].into_iter().chain(restrict.then_some("__restrict__"));
    let declarator: Vec<String> = match declared {
        None => vec![name.into()],
        Some(1) if u.arbitrary()? => star.chain([name]).map(str::to_owned).collect(),
        Some(1) if u.arbitrary()? => [name, "[", "]"].map(str::to_owned).into(),
        Some(count) if u.arbitrary()? => [name, "[", "]", "[", &count.to_string(), "]"].map(str::to_owned).into(),
        Some(count) => {
            let count = count.to_string();
            ["("].into_iter().chain(star).chain([name, ")", "[", &count, "]"]).map(str::to_owned).collect()
        }
    };
    tokens.extend(words.into_iter().chain(declarator));
    Ok(())
}
