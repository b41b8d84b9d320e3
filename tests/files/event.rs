//! A change of a file or a name in the folder, as the log has it.

/// Files have the numbers of their inodes; a file that is created may have the number of one that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A new file; without a name if it was opened with `O_TMPFILE`.
    Create {
        file: u64,
        name: Option<String>,
    },
    Write {
        file: u64,
        offset: u64,
        bytes: Vec<u8>,
    },
    Resize {
        file: u64,
        len: u64,
    },
    /// The file is on the disk, with its time in seconds and nanoseconds.
    Sync {
        file: u64,
        modified: [i64; 2],
    },
    /// The names in the folder itself, which is empty, or in one of its folders are on the disk.
    SyncNames {
        folder: String,
    },
    Link {
        file: u64,
        name: String,
    },
    Rename {
        from: String,
        to: String,
        exchange: bool,
    },
    Unlink {
        name: String,
    },
}

impl Event {
    /// A number for the kind, three numbers, the lengths of two pieces of bytes, and these.
    #[allow(dead_code, reason = "only the library writes a log")]
    pub fn to_bytes(&self) -> Vec<u8> {
        let (kind, numbers, pieces): (u8, [u64; 3], [&[u8]; 2]) = match self {
            Event::Create { file, name: None } => (0, [*file, 0, 0], [&[], &[]]),
            Event::Create { file, name: Some(name) } => (1, [*file, 0, 0], [name.as_bytes(), &[]]),
            Event::Write { file, offset, bytes } => (2, [*file, *offset, 0], [bytes, &[]]),
            Event::Resize { file, len } => (3, [*file, *len, 0], [&[], &[]]),
            Event::Sync { file, modified } => (4, [*file, modified[0] as u64, modified[1] as u64], [&[], &[]]),
            Event::SyncNames { folder } => (5, [0; 3], [folder.as_bytes(), &[]]),
            Event::Link { file, name } => (6, [*file, 0, 0], [name.as_bytes(), &[]]),
            Event::Rename { from, to, exchange } => (7, [u64::from(*exchange), 0, 0], [from.as_bytes(), to.as_bytes()]),
            Event::Unlink { name } => (8, [0; 3], [name.as_bytes(), &[]]),
        };
        let mut all = vec![kind];
        all.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        all.extend(pieces.iter().flat_map(|piece| (piece.len() as u64).to_le_bytes()));
        all.extend(pieces.concat());
        all
    }

    /// Takes the first event of a log.
    #[allow(dead_code, reason = "only a test reads a log")]
    pub fn take(log: &mut &[u8]) -> Option<Event> {
        let (kind, mut rest) = log.split_first()?;
        let mut number = || {
            let (number, after) = rest.split_first_chunk()?;
            rest = after;
            Some(u64::from_le_bytes(*number))
        };
        let [a, b, c, one, other] = [number()?, number()?, number()?, number()?, number()?];
        let (one, rest) = rest.split_at_checked(one as usize)?;
        let (other, rest) = rest.split_at_checked(other as usize)?;
        *log = rest;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        Some(match kind {
            0 => Event::Create { file: a, name: None },
            1 => Event::Create { file: a, name: Some(text(one)?) },
            2 => Event::Write { file: a, offset: b, bytes: one.to_vec() },
            3 => Event::Resize { file: a, len: b },
            4 => Event::Sync { file: a, modified: [b as i64, c as i64] },
            5 => Event::SyncNames { folder: text(one)? },
            6 => Event::Link { file: a, name: text(one)? },
            7 => Event::Rename { from: text(one)?, to: text(other)?, exchange: a != 0 },
            8 => Event::Unlink { name: text(one)? },
            _ => return None,
        })
    }
}
