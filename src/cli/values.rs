//! Parsers for the values of arguments.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use bytesize::ByteSize;
use clap::builder::{OsStringValueParser, TypedValueParser};
use overshot::{DeviceChoice, Dtype, Error, Number, Scalar, device::Emulated, io::NamedFile};

use super::Failure;

/// A number of the job, which is the same for all rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// It adapts to what it meets.
    Number(Number),
    /// It has a dtype.
    Scalar(Scalar),
}

/// A name of the job with its file or number.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    pub name: String,
    pub file: NamedFile,
}

impl Binding {
    /// Returns the number if the text is one: it has the dtype after a colon, or else adapts to what it meets.
    ///
    /// # Errors
    /// If a file has that name, which makes the argument ambiguous, and if the number does not fit its dtype.
    pub fn number(&self) -> Result<Option<Value>, Failure> {
        let Binding { name, file: NamedFile { path, dtype, .. } } = self;
        let Some(text) = path.to_str().filter(|text| is_number(text)) else { return Ok(None) };
        if path.symlink_metadata().is_ok() {
            let end = dtype.map(|dtype| format!(":{dtype}")).unwrap_or_default();
            return Err(Failure::Usage(format!(
                "{name}={text}: is a number, but a file of that name exists; write {name}=./{text}{end} for the \
                 file, or write the number differently"
            )));
        }
        let value = match dtype {
            Some(dtype) => Scalar::parse(text, *dtype).map(Value::Scalar),
            None => text.parse().ok().map(Value::Number),
        };
        let dtype = dtype.unwrap_or(Dtype::F64);
        let Some(value) = value else {
            return Err(Failure::Usage(format!("{name}={text}:{dtype}: write a number of {dtype}")));
        };
        let float = match value {
            Value::Number(number) => number.as_f64(),
            Value::Scalar(scalar) => scalar.as_f64(),
        };
        // `inf` is intended, overflow is not.
        if float.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) {
            return Err(Failure::Usage(format!("{name}={text}: the number is too large for {dtype}")));
        }
        Ok(Some(value))
    }
}

/// Whether the text is a number or a bool of any dtype.
fn is_number(text: &str) -> bool {
    matches!(text, "true" | "false") || text.parse::<f64>().is_ok()
}

/// `NAME=PATH[:DTYPE[!]]`.
pub fn binding() -> impl TypedValueParser<Value = Binding> {
    OsStringValueParser::new().try_map(|text| parse_binding(&text))
}

fn parse_binding(text: &OsStr) -> Result<Binding, String> {
    let bytes = text.as_bytes();
    let Some(equals) = bytes.iter().position(|byte| *byte == b'=') else {
        return Err("write NAME=PATH, as in a=a.npy".into());
    };
    let (name, path) = (&bytes[..equals], &bytes[equals + 1..]);
    let name = str::from_utf8(name).map_err(|_| "the name is not UTF-8 text")?;
    if name.is_empty() {
        return Err("the name before '=' is missing".into());
    }
    let file = parse_file(path)?;
    Ok(Binding { name: name.into(), file })
}

/// `PATH[:DTYPE]`.
pub fn file() -> impl TypedValueParser<Value = NamedFile> {
    OsStringValueParser::new().try_map(|text| parse_file(text.as_bytes()))
}

fn parse_file(text: &[u8]) -> Result<NamedFile, String> {
    let file = NamedFile::parse(OsStr::from_bytes(text)).map_err(|error| error.to_string())?;
    if file.path.as_os_str().is_empty() {
        return Err("the path is missing".into());
    }
    Ok(file)
}

/// Parses a number of bytes other than 0, such as `64MiB`, `2GB` or `4096`.
pub fn size(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(ByteSize(0)) => Err("must be more than 0".into()),
        Ok(ByteSize(bytes)) => Ok(bytes),
        Err(_) => Err("write a number of bytes, or a size such as 64MiB or 2GB".into()),
    }
}

/// Parses a count, such as `1000000`, `1e6` or `1M`.
pub fn count(text: &str) -> Result<u64, String> {
    let error = || "write a whole number, such as 1000000, 1e6 or 1M (k, M, G and T are powers of 1000)".to_owned();
    if let Ok(count) = text.parse() {
        return Ok(count);
    }
    let suffixes = [("k", 3), ("K", 3), ("M", 6), ("G", 9), ("T", 12)];
    let suffix = suffixes.iter().find_map(|(suffix, zeros)| Some((text.strip_suffix(suffix)?, *zeros)));
    let (digits, zeros) = match suffix {
        Some(found) => found,
        None => {
            let (digits, zeros) = text.split_once(['e', 'E']).ok_or_else(error)?;
            (digits, zeros.parse::<u32>().map_err(|_| error())?)
        }
    };
    // 2.5M is an integer.
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let zeros = usize::try_from(zeros).ok().and_then(|zeros| zeros.checked_sub(part.len())).ok_or_else(error)?;
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(part) {
        return Err(error());
    }
    let power = u32::try_from(zeros).ok().and_then(|zeros| 10u64.checked_pow(zeros)).ok_or_else(error)?;
    format!("{whole}{part}").parse::<u64>().ok().and_then(|count| count.checked_mul(power)).ok_or_else(error)
}

/// What `--rows` says.
#[derive(Clone, Debug, PartialEq)]
pub enum Rows {
    /// The number of rows of the job.
    Count(u64),
    /// The rows to run.
    Range(Range<u64>),
}

/// Parses a number of rows, or a range `A..B` of them.
pub fn rows(text: &str) -> Result<Rows, String> {
    let Some((start, end)) = text.split_once("..") else { return Ok(Rows::Count(count(text)?)) };
    match count(start)?..count(end)? {
        rows if rows.start > rows.end => Err("the rows end before they begin".into()),
        rows => Ok(Rows::Range(rows)),
    }
}

/// Parses the number of a part and the number of parts: `0/4` to `3/4`.
pub fn part(text: &str) -> Result<(u64, u64), String> {
    let numbers = text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
    match numbers {
        Some((part, of)) if part < of => Ok((part, of)),
        Some((_, of)) => Err(format!("parts have the numbers from 0 to one less than their count, {of}")),
        None => Err("write the number of the part and the number of parts, such as 0/4".into()),
    }
}

/// The rows before and behind each row that a kernel reads of an input, or of all inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halo {
    pub input: Option<String>,
    pub before: usize,
    pub after: usize,
}

/// Parses a halo: `1`, `1:0`, `x=1` or `x=1:0`.
pub fn halo(text: &str) -> Result<Halo, String> {
    let (input, rows) = text.split_once('=').map_or((None, text), |(input, rows)| (Some(input.to_owned()), rows));
    let (before, after) = rows.split_once(':').unwrap_or((rows, rows));
    match (before.parse(), after.parse()) {
        (Ok(before), Ok(after)) if input.as_deref() != Some("") => Ok(Halo { input, before, after }),
        _ => Err("write the rows before and behind, such as 1, 1:0 or x=1:0".into()),
    }
}

/// Parses a time in seconds: `0.5`.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "write a number of seconds, such as 0.5".into())
}

/// Parses a fraction: `0.01`.
pub fn fraction(text: &str) -> Result<f64, String> {
    let fraction = text.parse().ok().filter(|fraction| (0.0..=1.0).contains(fraction));
    fraction.ok_or_else(|| "write a fraction from 0 to 1, such as 0.01".into())
}

/// Parses a device. Emulated devices have the rates of [`emulated`].
pub fn device(text: &str) -> Result<DeviceChoice, Error> {
    Ok(match text.parse()? {
        DeviceChoice::Emulated(all) => DeviceChoice::Emulated(all.into_iter().map(with_rates).collect()),
        DeviceChoice::CpuAndEmulated(all) => DeviceChoice::CpuAndEmulated(all.into_iter().map(with_rates).collect()),
        other => other,
    })
}

/// The emulated device of the command. Its rates are roughly those of a GPU on PCIe 4 and of one core of the host, so
/// that reports and traces show realistic virtual times.
pub fn emulated() -> Emulated {
    with_rates(Emulated::new())
}

fn with_rates(device: Emulated) -> Emulated {
    device.copy_in_rate(25e9).copy_out_rate(25e9).kernel_rate(5e9).fill_rate(10e9).drain_rate(10e9).cpu_rate(5e8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_a_file() {
        let Binding { name, file } = parse_binding(OsStr::new("x=a=b.npy:f32")).unwrap();
        assert_eq!((name.as_str(), file.path.to_str(), file.dtype), ("x", Some("a=b.npy"), Some(Dtype::F32)));
        for text in ["", "x", "x=", "=x", "x=:f32"] {
            assert!(parse_binding(OsStr::new(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_have_a_dtype() {
        let number = |text: &str| parse_binding(OsStr::new(text)).unwrap().number();
        for (text, value) in [
            ("x=5.0", Value::Number(5.0.into())),
            ("x=-1", Value::Number((-1).into())),
            ("x=1e-3", Value::Number(0.001.into())),
            ("x=true", Value::Number(true.into())),
            ("x=5:f32", Value::Scalar(Scalar::F32(5.0))),
            ("x=18446744073709551616", Value::Number((1_i128 << 64).into())),
            ("x=inf", Value::Number(f64::INFINITY.into())),
        ] {
            assert_eq!(number(text).unwrap(), Some(value), "{text}");
        }
        for text in ["x=./5", "x=5.npy", "x=True.npy", "x=e", "x=0x10", "x=1,5"] {
            assert_eq!(number(text).unwrap(), None, "{text}");
        }
        for text in ["x=5.5:i32", "x=300:u8", "x=1e400", "x=1e39:f32", "x=2:bool"] {
            assert!(number(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts() {
        for (text, value) in [("1000", 1000), ("1e6", 1_000_000), ("1M", 1_000_000), ("2.5k", 2500), ("1.5e1", 15)] {
            assert_eq!(count(text), Ok(value), "{text}");
        }
        for text in [
            "",
            "1.5",
            "1e-3",
            "-1",
            "1.25e1",
            "e6",
            "M",
            "1e20",
            "1e99999999999",
            "many",
            "1.+5e3",
            "18446744073709551615k",
        ] {
            assert!(count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rows_and_parts() {
        assert_eq!(rows("1e6"), Ok(Rows::Count(1_000_000)));
        assert_eq!(rows("4096..1e6"), Ok(Rows::Range(4096..1_000_000)));
        assert_eq!(rows("0..0"), Ok(Rows::Range(0..0)));
        for text in ["..", "1..", "..1", "2..1", "1...2", "a..b", "-1..2"] {
            assert!(rows(text).is_err(), "{text}");
        }
        assert_eq!((part("0/4"), part("3/4")), (Ok((0, 4)), Ok((3, 4))));
        for text in ["", "1", "1/", "/1", "4/4", "0/0", "-1/4", "1/2/3", "a/b"] {
            assert!(part(text).is_err(), "{text}");
        }
    }

    #[test]
    fn halos() {
        let of = |input: Option<&str>, before, after| Ok(Halo { input: input.map(str::to_owned), before, after });
        assert_eq!(halo("2"), of(None, 2, 2));
        assert_eq!(halo("1:0"), of(None, 1, 0));
        assert_eq!(halo("x=1:30"), of(Some("x"), 1, 30));
        assert_eq!(halo("x=0"), of(Some("x"), 0, 0));
        for text in ["", "x", "x=", "=1", "1:", ":1", "-1", "1:2:3", "x=1.5"] {
            assert!(halo(text).is_err_and(|error| error.contains("1:0")), "{text}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("1GB"), Ok(1_000_000_000));
        assert_eq!(size("4096"), Ok(4096));
        for text in ["", "0", "0GiB", "-1", "1.5.2MB", "many", "5 apples"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
