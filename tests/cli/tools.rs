//! A folder with files, and the command run in it.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Output};

use libtest_mimic::Completion;

use crate::Outcome;

pub const RAN: Outcome = Ok(Completion::Completed);

/// The end of a case that cannot run here.
pub fn not_run(why: &str) -> Outcome {
    Ok(Completion::ignored_with(format!("not run: {why}")))
}

/// The command to test.
pub fn binary() -> PathBuf {
    env::var_os("OVERSHOT_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_overshot").into()).into()
}

/// A separate folder for a case.
pub struct CaseFolder {
    pub folder: tempfile::TempDir,
    device: String,
}

/// The result of a run of the command.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl CaseFolder {
    pub fn new(device: &str) -> CaseFolder {
        CaseFolder { folder: tempfile::tempdir().unwrap(), device: device.into() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn raw(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// A `.npy` file of `f64`.
    pub fn npy(&self, name: &str, values: &[f64]) {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.raw(name, &npy("<f8", "False", &format!("({},)", values.len()), &data));
    }

    /// A file of `len` zeros that take no space; `false` if the file system has no such files.
    pub fn sparse(&self, name: &str, len: u64) -> bool {
        File::create(self.path(name)).unwrap().set_len(len).is_ok()
    }

    /// `overshot ARGS`, to be run in the folder.
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(binary());
        command.args(args).current_dir(self.folder.path()).env_remove("OVERSHOT_LOG");
        // Not what earlier runs of this user have measured and learned.
        command.env("OVERSHOT_CACHE", "");
        command
    }

    /// Runs `overshot ARGS`.
    pub fn overshot<S: AsRef<OsStr>>(&self, args: &[S]) -> Done {
        done(self.command(args).output().unwrap())
    }

    /// Runs `overshot run --device DEVICE ARGS`.
    pub fn run(&self, args: &[&str]) -> Done {
        self.overshot(&[&["run", "--device", &self.device], args].concat())
    }

    /// Runs it, expects success, and returns its report as JSON.
    pub fn report(&self, args: &[&str]) -> serde_json::Value {
        let done = self.run(&[&["--json"], args].concat());
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{args:?}");
        serde_json::from_str(&done.stdout).unwrap()
    }

    /// Runs it, and expects exit code `code` and one line that holds all of `words`, with no file touched.
    pub fn refused(&self, code: i32, words: &[&str], args: &[&str]) {
        let before = self.files();
        let done = self.run(args);
        done.is_error(code, words);
        assert_eq!(self.files(), before, "{args:?} touched files");
    }

    /// The names and contents of the files, hidden ones too; of large ones the length.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(self.folder.path()).unwrap().map(|entry| {
            let path = entry.unwrap().path();
            let len = fs::metadata(&path).map_or(0, |metadata| metadata.len());
            let small = path.is_file() && len < 1 << 20;
            let content = if small { fs::read(&path).unwrap() } else { len.to_le_bytes().into() };
            (path.file_name().unwrap().to_string_lossy().into_owned(), content)
        });
        entries.collect()
    }

    pub fn names(&self) -> Vec<String> {
        self.files().into_keys().collect()
    }
}

/// The results of a report by their names.
pub fn results(report: &serde_json::Value) -> serde_json::Value {
    let results = report["results"].as_array().unwrap();
    results.iter().map(|result| (result["name"].as_str().unwrap().to_owned(), result["value"].clone())).collect()
}

pub fn done(output: Output) -> Done {
    Done {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Done {
    /// The error is one line; an error in an expression has two more, which show the place.
    pub fn is_error(&self, code: i32, words: &[&str]) {
        assert_eq!((self.code, self.stdout.as_str()), (Some(code), ""), "{self:?}");
        let lines: Vec<_> = self.stderr.lines().collect();
        assert!(self.stderr.starts_with("overshot: error: ") && self.stderr.ends_with('\n'), "{self:?}");
        match &lines[..] {
            [_] => {}
            [first, text, caret] => {
                assert!(first.contains("column") && text.starts_with("  ") && caret.trim() == "^", "{self:?}");
            }
            _ => panic!("more than one line: {self:?}"),
        }
        words.iter().for_each(|word| assert!(lines[0].contains(word), "no '{word}' in {self:?}"));
    }
}

/// A `.npy` file of version 1.
pub fn npy(descr: &str, fortran_order: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    // The list of the fields of records has no quotes.
    let descr = if descr.starts_with('[') { descr.to_owned() } else { format!("'{descr}'") };
    file.extend(format!("{{'descr': {descr}, 'fortran_order': {fortran_order}, 'shape': {shape}, }}").bytes());
    file.resize(127, b' ');
    file.push(b'\n');
    file.extend(data);
    file
}

/// The rows of a `.npy` file of `f64`.
pub fn rows(file: &[u8]) -> Vec<f64> {
    assert_eq!(&file[..6], b"\x93NUMPY");
    let start = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    file[start..].chunks_exact(8).map(|row| f64::from_le_bytes(row.try_into().unwrap())).collect()
}
