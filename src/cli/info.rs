//! `overshot info`: what files hold.

mod header;
mod stats;

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use overshot::{DeviceChoice, Dtype, Engine, Error, Source, io::NamedFile, units};
use serde::Serialize;

use self::header::NpyHeader;
use self::stats::Stats;
use super::args::InfoArgs;
use super::output::{print, print_json};
use super::style::{dim, heading};

use super::{Failure, Result};

/// Bytes at the start of a file that say what it is.
const HEAD: u64 = 4096;

#[derive(Serialize)]
struct Infos<'a> {
    schema_version: u32,
    overshot_version: &'a str,
    files: &'a [Info],
}

/// What is known of a file. What is not known is `None`.
#[derive(Serialize)]
struct Info {
    path: String,
    /// `npy`, `raw`, or another format that cannot be read.
    format: String,
    file_bytes: Option<u64>,
    dtype: Option<&'static str>,
    rows: Option<u64>,
    shape: Option<Vec<u64>>,
    data_bytes: Option<u64>,
    npy: Option<NpyHeader>,
    stats: Option<Stats>,
    /// Why a job cannot read it, and what to do.
    problem: Option<String>,
}

/// Shows the files.
pub fn info(args: &InfoArgs) -> Result {
    let files: Vec<Info> = args.files.iter().map(|file| of_file(file, args)).collect::<Result<_>>()?;
    if args.json {
        print_json(&Infos { schema_version: 1, overshot_version: env!("CARGO_PKG_VERSION"), files: &files })?;
    } else {
        print(files.iter().map(Info::text).collect::<String>())?;
    }
    match files.iter().filter(|file| file.problem.is_some()).count() {
        0 => Ok(()),
        bad => Err(Failure::Wrong(format!("{bad} of {} cannot be read", units::counted(files.len() as u64, "file")))),
    }
}

fn of_file(file: &NamedFile, args: &InfoArgs) -> Result<Info> {
    let mut info = Info::unknown(&file.path);
    let head = match head(&file.path) {
        Ok((head, bytes)) => {
            info.file_bytes = Some(bytes);
            head
        }
        // The library says in its words what is wrong with such a file.
        Err(_) => vec![],
    };
    info.npy = NpyHeader::read(&head);
    info.format = if info.npy.is_some() { "npy" } else { foreign(&head).map_or("raw", |(name, _)| name) }.into();
    if let (None, Some((name, remedy))) = (&info.npy, foreign(&head)) {
        info.problem = Some(format!("is {name}; {remedy}"));
        return Ok(info);
    }
    if info.npy.is_none() && info.file_bytes.is_some() && file.dtype.is_none() && !is_named_npy(&file.path) {
        info.problem = Some(format!("is not .npy: add the dtype, as in {}:f32", info.path));
        return Ok(info);
    }
    match open(file, info.npy.is_some()) {
        Err(Error::File { problem, remedy, .. }) => info.problem = Some(format!("{problem}; {remedy}")),
        Err(error) => info.problem = Some(error.to_string()),
        Ok(source) => {
            let (dtype, rows) = (source.dtype(), source.rows());
            info.dtype = Some(dtype.name());
            info.rows = Some(rows);
            info.shape = Some(source.shape().map_or_else(|| vec![rows], <[u64]>::to_vec));
            info.data_bytes = Some(rows.saturating_mul(dtype.size() as u64));
            if args.stats {
                info.stats = Some(Stats::of(&*source, &engine(&args.device)?, args.quiet)?);
            }
        }
    }
    Ok(info)
}

fn engine(device: &DeviceChoice) -> Result<Engine> {
    Ok(Engine::builder().device(device.clone()).build()?)
}

/// The file as a job reads it. By what it holds, not by its name.
fn open(file: &NamedFile, is_npy: bool) -> overshot::Result<Box<dyn Source>> {
    if is_npy || file.dtype.is_none() {
        let npy = overshot::Npy::open(&file.path)?;
        return match file.dtype.filter(|dtype| *dtype != npy.dtype()) {
            Some(dtype) => Err(Error::Job(format!("holds {}, not {dtype}; leave ':{dtype}' away", npy.dtype()))),
            None => Ok(Box::new(npy)),
        };
    }
    Ok(Box::new(overshot::Raw::open(&file.path, file.dtype.unwrap_or(Dtype::U8))?))
}

/// The start of a regular file, and its length.
fn head(path: &Path) -> std::io::Result<(Vec<u8>, u64)> {
    // Opening a pipe would wait for someone to write into it.
    let bytes = std::fs::metadata(path).and_then(|metadata| {
        if metadata.is_file() { Ok(metadata.len()) } else { Err(std::io::ErrorKind::InvalidInput.into()) }
    })?;
    let mut head = Vec::new();
    File::open(path)?.take(HEAD).read_to_end(&mut head)?;
    Ok((head, bytes))
}

fn is_named_npy(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy"))
}

/// Formats that are not read, by their first bytes, with what to do.
fn foreign(head: &[u8]) -> Option<(&'static str, &'static str)> {
    const ARRAYS: &str = "save each array by itself with numpy.save";
    const COLUMNS: &str = "save each column by itself, as in numpy.save(path, table['column'].to_numpy())";
    const UNPACK: &str = "unpack it first";
    let formats: &[(&[u8], &str, &str)] = &[
        (b"PK\x03\x04", "a zip archive, as .npz is", ARRAYS),
        (b"PAR1", "Parquet", COLUMNS),
        (b"ARROW1", "an Arrow file", COLUMNS),
        (b"\x89HDF\r\n\x1a\n", "HDF5", ARRAYS),
        (b"\x1f\x8b", "compressed with gzip", UNPACK),
        (b"\x28\xb5\x2f\xfd", "compressed with zstd", UNPACK),
        (b"\xfd7zXZ\x00", "compressed with xz", UNPACK),
        (b"BZh", "compressed with bzip2", UNPACK),
    ];
    let known = formats.iter().find(|(magic, ..)| head.starts_with(magic)).map(|(_, name, remedy)| (*name, *remedy));
    known.or_else(|| is_table(head).then_some(("text, as CSV is", COLUMNS)))
}

/// Whether it looks like lines of text with separators.
fn is_table(head: &[u8]) -> bool {
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    head.contains(&b'\n') && head.iter().all(is_text) && head.iter().any(|byte| matches!(byte, b',' | b';' | b'\t'))
}

impl Info {
    fn unknown(path: &Path) -> Info {
        Info {
            path: path.to_string_lossy().into_owned(),
            format: String::new(),
            file_bytes: None,
            dtype: None,
            rows: None,
            shape: None,
            data_bytes: None,
            npy: None,
            stats: None,
            problem: None,
        }
    }

    fn text(&self) -> String {
        let mut text = heading(&self.path);
        if let (Some(dtype), Some(rows), Some(bytes)) = (self.dtype, self.rows, self.data_bytes) {
            let _ = write!(text, ": {} of {dtype}, {}", units::counted(rows, "row"), units::bytes(bytes));
        } else if let Some(bytes) = self.file_bytes {
            let _ = write!(text, ": {}", units::bytes(bytes));
        }
        if let Some(shape) = self.shape.as_deref().filter(|shape| shape.len() != 1) {
            let lengths: Vec<_> = shape.iter().map(|length| units::count(*length)).collect();
            let _ = write!(text, ", shape ({})", lengths.join(", "));
        }
        text.push('\n');
        let mut line = |what: String| _ = writeln!(text, "  {what}");
        match &self.npy {
            Some(header) => line(dim(&header.text())),
            None if self.dtype.is_some() => line(dim("raw; can be used in place")),
            None => {}
        }
        if let Some(stats) = &self.stats {
            line(stats.text());
        }
        if let Some(problem) = &self.problem {
            line(problem.clone());
        }
        text
    }
}
