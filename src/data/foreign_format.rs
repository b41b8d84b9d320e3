//! Formats that Overshot neither reads nor writes. Files in them are refused, so that nobody takes them for raw rows.

use std::path::Path;

/// A file format that Overshot does not support.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Foreign {
    /// What a file in this format is, such as `a Parquet file`.
    pub what: &'static str,
    /// How to make its data readable.
    pub remedy: &'static str,
}

const DECOMPRESS: &str = "decompress it first";
const COLUMNS: &str = "save each column with numpy.save, as in numpy.save('x.npy', pandas.read_parquet(path)['x'])";
const FEATHER: &str = "save each column with numpy.save, as in numpy.save('x.npy', pandas.read_feather(path)['x'])";
const TABLE: &str = "save each column with numpy.save, as in numpy.save('x.npy', pandas.read_csv(path)['x'])";
const ARRAYS: &str = "save each array separately with numpy.save";
const HDF5: &str = "save each dataset with numpy.save, as in numpy.save('x.npy', h5py.File(path)['x'])";
const NUMBERS: &str = "save its numbers with numpy.save";

/// Formats by file extension, in lower case.
const ENDINGS: [(&[&str], &str, &str); 15] = [
    (&["npz"], "a .npz archive", ARRAYS),
    (&["zip", "7z", "tar", "tgz", "rar"], "an archive", "unpack it first"),
    (&["gz", "bz2", "xz", "zst", "lz4", "lzma", "br"], "a compressed file", DECOMPRESS),
    (&["parquet", "pq"], "a Parquet file", COLUMNS),
    (&["arrow", "feather", "ipc"], "an Arrow file", FEATHER),
    (&["arrows"], "a stream of Arrow's", "write an Arrow file, as with pyarrow.ipc.new_file"),
    (&["orc", "avro"], "a table", NUMBERS),
    (&["csv", "tsv"], "a CSV or TSV file", TABLE),
    (&["txt", "json", "jsonl", "ndjson", "xml", "yaml", "yml", "toml", "md", "html", "log"], "text", NUMBERS),
    (&["h5", "hdf5", "he5", "nc", "nc4"], "an HDF5 file", HDF5),
    (&["zarr", "n5"], "a Zarr array", "save it with numpy.save, as in numpy.save('x.npy', zarr.open(path)[:])"),
    (&["xls", "xlsx", "ods", "db", "sqlite", "mdb"], "a table", NUMBERS),
    (
        &["pkl", "pickle", "pt", "pth", "safetensors", "mat", "rds", "rdata", "dta", "sav"],
        "a file of another program",
        NUMBERS,
    ),
    (
        &["png", "jpg", "jpeg", "gif", "bmp", "tif", "tiff", "webp", "wav", "mp3", "flac", "mp4"],
        "an image, audio or video file",
        NUMBERS,
    ),
    (&["py", "ipynb", "cu", "ptx", "cubin", "fatbin"], "a program", NUMBERS),
];

/// Formats by the first bytes of a file.
const FIRST_BYTES: [(&[u8], &str, &str); 27] = [
    (b"\x93NUMPY", "a .npy file under another name", "rename it, so that its name ends with .npy"),
    (b"PK\x03\x04", "a .npz or other archive", ARRAYS),
    (b"PK\x05\x06", "an empty archive", ARRAYS),
    (b"7z\xbc\xaf\x27\x1c", "an archive", "unpack it first"),
    (b"\x1f\x8b\x08", "compressed by gzip", DECOMPRESS),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", DECOMPRESS),
    (b"BZh", "compressed by bzip2", DECOMPRESS),
    (b"\xfd7zXZ\x00", "compressed by xz", DECOMPRESS),
    (b"\x04\x22\x4d\x18", "compressed by lz4", DECOMPRESS),
    (b"PAR1", "a Parquet file", COLUMNS),
    (b"ARROW1", "an Arrow file", FEATHER),
    (b"FEA1", "a Feather file", FEATHER),
    (b"Obj\x01", "an Avro file", NUMBERS),
    (b"ORC", "an ORC file", NUMBERS),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", HDF5),
    (b"CDF\x01", "a NetCDF file", NUMBERS),
    (b"CDF\x02", "a NetCDF file", NUMBERS),
    (b"CDF\x05", "a NetCDF file", NUMBERS),
    (b"SQLite format 3\x00", "a database", NUMBERS),
    (b"MATLAB 5.0", "a MATLAB file", NUMBERS),
    (b"SIMPLE  =", "a FITS file", NUMBERS),
    (b"\x80\x04\x95", "a pickle", NUMBERS),
    (b"\x89PNG\r\n", "an image", NUMBERS),
    (b"%PDF-", "a document", NUMBERS),
    (b"RIFF", "an audio or video file", NUMBERS),
    (b"\x7fELF", "a program", NUMBERS),
    (b"{\"", "JSON", NUMBERS),
];

/// Returns the unsupported format that a file name indicates, if any.
pub(super) fn by_name(path: &Path) -> Option<Foreign> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    let (_, what, remedy) = ENDINGS.iter().find(|(endings, ..)| endings.contains(&ending.as_str()))?;
    Some(Foreign { what, remedy })
}

/// Returns the unsupported format of a file, from its first bytes (16 are enough) or else from its name. `None` for
/// files named `.npy`, and for files that may be raw.
#[doc(hidden)]
pub fn foreign_format(path: &Path, head: &[u8]) -> Option<Foreign> {
    if is_npy(path) { None } else { by_first_bytes(head).or_else(|| by_name(path)) }
}

/// Whether a file is named as a `.npy` file.
pub(super) fn is_npy(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy"))
}

/// Returns the unsupported format that the first bytes of a file identify.
fn by_first_bytes(head: &[u8]) -> Option<Foreign> {
    let (_, what, remedy) = FIRST_BYTES.iter().find(|(bytes, ..)| head.starts_with(bytes))?;
    Some(Foreign { what, remedy })
}
