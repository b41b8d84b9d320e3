//! The file of `--trace`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use overshot::Timeline;

use super::{Failure, Result};

/// A file that was made and waits for the timeline.
pub struct Trace {
    path: PathBuf,
    file: File,
}

impl Trace {
    /// Makes the file.
    pub fn create(path: &Path) -> Result<Trace> {
        match File::create(path) {
            Ok(file) => Ok(Trace { path: path.into(), file }),
            Err(error) => Err(failure(path, &error)),
        }
    }

    /// Writes the timeline.
    pub fn write(self, timeline: &Timeline) -> Result {
        let mut file = BufWriter::new(self.file);
        timeline.write_chrome(&mut file).and_then(|()| file.flush()).map_err(|error| failure(&self.path, &error))
    }
}

fn failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("--trace {}: cannot be written ({error}); choose another file", path.display()))
}
