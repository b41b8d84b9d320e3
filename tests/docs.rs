//! README and `docs/` are true: their commands run and print what is shown, and options, files and headings that they
//! name exist.
//!
//! Every document has its own folder with the files that documents name. Its blocks run in their order:
//!
//! - `sh`: every command has to succeed. Of `cargo`, `python3` and scripts only the targets and paths are checked; a
//!   pipe to `jq` is left out.
//! - `sh gpu`: needs a GPU or takes long. `overshot run` becomes `overshot plan`, other commands print their help.
//! - `text` behind a `sh` block: what its last command prints. Times, rates and line breaks may differ.
//! - `LANGUAGE FILE`: the content of a file, which is written to the folder.
//!
//! Blocks of Rust are documentation tests: `src/lib.rs` includes every document. `docs/errors.md` has the messages of
//! all errors in the sources, and no others.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

#[path = "docs/errors.rs"]
mod errors;
#[path = "docs/markdown.rs"]
mod markdown;
#[path = "docs/messages.rs"]
mod messages;
#[path = "watchdog/mod.rs"]
mod watchdog;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
#[cfg(any(feature = "arrow", feature = "parquet"))]
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use markdown::{Block, blocks, commands, headings, links, options};

/// Rows of the files that documents read.
const ROWS: u64 = 1_000_000;

fn main() {
    let mut documents: Vec<PathBuf> =
        fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    documents.sort();
    documents.push(root().join("README.md"));
    let mut trials = Vec::new();
    for path in documents {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let (read, links_of, compiled) = (path.clone(), path.clone(), path);
        let commands = format!("{name}: commands");
        trials.push(Trial::test(commands.clone(), move || watchdog::watched(&commands, || run(&read))));
        trials.push(Trial::test(format!("{name}: links and options"), move || check_names(&links_of)));
        trials.push(Trial::test(format!("{name}: blocks of Rust are compiled"), move || check_compiled(&compiled)));
    }
    trials.push(Trial::test("docs/errors.md: has the messages of all errors", check_errors));
    trials.push(Trial::test("what would be wrong is found", mistakes));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The commands of a document, in its folder.
fn run(document: &Path) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    // README makes its files itself, as a reader who tries it does.
    if document.file_name().is_some_and(|name| name != "README.md") {
        make_files(folder.path())?;
    }
    run_text(&fs::read_to_string(document)?, folder.path())
}

fn run_text(text: &str, folder: &Path) -> Result<(), Failed> {
    let mut printed: Option<String> = None;
    for Block { info, text, line } in blocks(text) {
        let fail = |problem: String| Failed::from(format!("line {line}: {problem}"));
        match info.split_whitespace().collect::<Vec<_>>()[..] {
            ["sh"] | ["sh", "gpu"] => {
                for command in commands(&text) {
                    let output = run_command(&command, info == "sh gpu", folder).map_err(fail)?;
                    printed = output.or(printed);
                }
            }
            ["text"] => {
                // A block that stands by itself is a picture.
                if let Some(printed) = printed.take()
                    && comparable(&text) != comparable(&printed)
                {
                    return Err(fail(format!("the command prints\n{printed}\nand not\n{text}")));
                }
            }
            [_, file] => fs::write(folder.join(file), &text)?,
            _ => {}
        }
    }
    Ok(())
}

/// Runs a command or checks what it names; returns what it printed if it ran.
fn run_command(command: &str, is_gpu: bool, folder: &Path) -> Result<Option<String>, String> {
    let words: Vec<&str> = command.split_whitespace().skip_while(|word| word.contains('=')).collect();
    match words[..] {
        ["overshot", ..] => {}
        ["cargo", ..] => return check_cargo(&words, folder).map(|()| None),
        ["python3", path, ..] | [path, ..] if root().join(path).exists() => return Ok(None),
        _ => return Err(format!("`{command}`: a test cannot run this, and there is no such file")),
    }
    let mut command = command.split(" | jq").next().unwrap_or_default().to_owned();
    if is_gpu {
        let shown =
            if words[1] == "run" { "overshot plan".to_owned() } else { format!("overshot {} --help", words[1]) };
        command = command.replacen(&format!("overshot {}", words[1]), &shown, 1);
    }
    shell(&command, folder).map(Some)
}

/// Runs a line of a shell, which has to succeed; returns its standard output.
fn shell(command: &str, folder: &Path) -> Result<String, String> {
    let overshot: PathBuf =
        env::var_os("OVERSHOT_BIN").map_or_else(|| env!("CARGO_BIN_EXE_overshot").into(), PathBuf::from);
    let paths = env::var_os("PATH").unwrap_or_default();
    let path = [overshot.parent().unwrap().into()].into_iter().chain(env::split_paths(&paths));
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(folder)
        .env("PATH", env::join_paths(path).unwrap())
        .env("OVERSHOT_CACHE", folder.join("cache"))
        .env_remove("OVERSHOT_LOG")
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("`{command}`: {}, {}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}

/// Whether the targets that a command of cargo names exist.
fn check_cargo(words: &[&str], folder: &Path) -> Result<(), String> {
    for pair in words.windows(2) {
        let paths = match *pair {
            ["--example", name] => [format!("examples/{name}.rs"), format!("examples/{name}/main.rs")],
            ["--bench", name] => [format!("benches/{name}.rs"), format!("benches/{name}/main.rs")],
            ["--test", name] => [format!("tests/{name}.rs"), format!("tests/{name}/main.rs")],
            ["--", command] if words[1] == "run" && !words.contains(&"--example") => {
                shell(&format!("overshot {command} --help"), folder)?;
                continue;
            }
            _ => continue,
        };
        if !paths.iter().any(|path| root().join(path).exists()) {
            return Err(format!("`{}`: there is no {}", words.join(" "), paths[0]));
        }
    }
    Ok(())
}

/// What must be the same: words, without numbers that have a unit of time or rate, or `%`, behind them.
fn comparable(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_timed = |unit: Option<&&str>| {
        let unit = unit.map_or("", |unit| unit.trim_matches(|c: char| ",;:.()".contains(c)));
        matches!(unit, "s" | "ms" | "µs" | "min" | "h" | "GB/s" | "%")
    };
    let mut compared = Vec::new();
    for (place, word) in words.iter().enumerate() {
        let is_number = word.trim_start_matches('(').starts_with(|c: char| c.is_ascii_digit());
        if is_timed(Some(word)) {
            compared.push("(time)".to_owned());
        } else if !(is_number && is_timed(words.get(place + 1))) {
            compared.push((*word).to_owned());
        }
    }
    compared
}

/// The files that documents read.
fn make_files(folder: &Path) -> Result<(), Failed> {
    for name in ["a", "b", "x"] {
        let text =
            format!("overshot run --quiet '{name} = (i * 7919 % 10007) / 10007' {name}={name}.npy --rows {ROWS}");
        shell(&text, folder)?;
    }
    shell(&format!("overshot run --quiet 'x = f32(i % 1000) / 1000' x=x.f32 --rows {ROWS}"), folder)?;
    fs::write(folder.join("trades.npy"), npy("[('price', '<f4'), ('size', '<u2')]", "2,", &[0; 12]))?;
    #[cfg(feature = "parquet")]
    for name in ["trades", "sales/year=2023/month=12/part-0", "sales/year=2024/month=1/part-0"] {
        let path = folder.join(name).with_extension("parquet");
        fs::create_dir_all(path.parent().ok_or("no folder")?)?;
        parquet(&path)?;
    }
    #[cfg(feature = "arrow")]
    arrow(&folder.join("trades.arrow"))?;
    zarr(&folder.join("era5.zarr"))?;
    let numbers: Vec<f64> = (0..40).map(|number| f64::from(number * 7919 % 1009)).collect();
    for (name, shape, count) in [
        ("table", "10, 4", 40),
        ("mu", "4,", 4),
        ("w", "10, 1", 10),
        ("key", "10,", 10),
        ("components", "4, 2", 8),
        ("centres", "5, 4", 20),
        ("norms", "5,", 5),
        ("weights", "4,", 4),
        ("target", "10,", 10),
        ("first", "4, 3", 12),
        ("second", "3, 2", 6),
    ] {
        let bytes: Vec<u8> = numbers[..count].iter().flat_map(|number| number.to_le_bytes()).collect();
        fs::write(folder.join(name).with_extension("npy"), npy("'<f8'", shape, &bytes))?;
    }
    fs::write(folder.join("data.npz"), archive(&["a.npy", "b.npy"], folder)?)?;
    fs::write(folder.join("filter.ptx"), "// a kernel")?;
    Ok(())
}

/// A file of this dtype and shape, as `numpy.save` writes it.
fn npy(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': ({shape})}}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), elements].concat()
}

/// Writes a Parquet file of prices, sizes and times.
#[cfg(feature = "parquet")]
fn parquet(path: &Path) -> Result<(), Failed> {
    use ::parquet::data_type::{DoubleType, Int64Type};
    use ::parquet::file::writer::SerializedFileWriter;
    let schema =
        "message trades { REQUIRED DOUBLE price; REQUIRED INT64 size; REQUIRED INT64 time (TIMESTAMP_MICROS); }";
    let schema = Arc::new(::parquet::schema::parser::parse_message_type(schema)?);
    let mut file = SerializedFileWriter::new(fs::File::create(path)?, schema, Arc::default())?;
    let mut group = file.next_row_group()?;
    let mut price = group.next_column()?.ok_or("no column")?;
    price.typed::<DoubleType>().write_batch(&[1.5, 2.5, 4.0], None, None)?;
    price.close()?;
    let mut size = group.next_column()?.ok_or("no column")?;
    size.typed::<Int64Type>().write_batch(&[50, 150, 250], None, None)?;
    size.close()?;
    let mut time = group.next_column()?.ok_or("no column")?;
    time.typed::<Int64Type>().write_batch(
        &[1_700_000_000_000_000, 1_700_000_000_250_000, 1_700_000_001_000_000],
        None,
        None,
    )?;
    time.close()?;
    group.close()?;
    file.close()?;
    Ok(())
}

/// Writes an Arrow file of the same columns.
#[cfg(feature = "arrow")]
fn arrow(path: &Path) -> Result<(), Failed> {
    use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
    let price: ArrayRef = Arc::new(Float64Array::from(vec![1.5, 2.5, 4.0]));
    let size: ArrayRef = Arc::new(Int64Array::from(vec![50, 150, 250]));
    let batch = RecordBatch::try_from_iter([("price", price), ("size", size)])?;
    let mut file = arrow_ipc::writer::FileWriter::try_new(fs::File::create(path)?, &batch.schema())?;
    file.write(&batch)?;
    file.finish()?;
    Ok(())
}

/// Writes a Zarr store of two arrays, in chunks that are not compressed.
fn zarr(store: &Path) -> Result<(), Failed> {
    for name in ["temperature", "pressure"] {
        fs::create_dir_all(store.join(name))?;
        let array = r#"{"zarr_format": 3, "node_type": "array", "shape": [6, 4], "data_type": "float32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3, 4]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}}, "fill_value": 0.0,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "attributes": {}}"#;
        fs::write(store.join(name).join("zarr.json"), array)?;
        for chunk in 0..2u8 {
            let values: Vec<u8> = (0..12u8).flat_map(|own| f32::from(chunk * 12 + own).to_le_bytes()).collect();
            fs::write(store.join(name).join(format!("c.{chunk}.0")), values)?;
        }
    }
    fs::write(store.join("zarr.json"), r#"{"zarr_format": 3, "node_type": "group", "attributes": {}}"#)?;
    Ok(())
}

/// An archive of files, as `numpy.savez` writes it.
fn archive(names: &[&str], folder: &Path) -> Result<Vec<u8>, Failed> {
    let (mut all, mut directory) = (Vec::new(), Vec::new());
    for name in names {
        let (start, content) = (all.len() as u32, fs::read(folder.join(name))?);
        let [size, length] = [content.len() as u32, name.len() as u32].map(u32::to_le_bytes);
        let common = [&[0; 12][..], &size, &size, &length].concat();
        all.extend([b"PK\x03\x04\0\0", &common[..], name.as_bytes(), &content].concat());
        let entry = [b"PK\x01\x02\0\0\0\0", &common[..], &[0; 10], &start.to_le_bytes(), name.as_bytes()].concat();
        directory.extend(entry);
    }
    let numbers = [directory.len() as u32, all.len() as u32].map(u32::to_le_bytes).concat();
    let count = (names.len() as u16).to_le_bytes();
    all.extend([&directory[..], b"PK\x05\x06\0\0\0\0", &count, &count, &numbers, &[0; 2]].concat());
    Ok(all)
}

/// Whether links lead somewhere, and options that the text names are options of the command.
fn check_names(document: &Path) -> Result<(), Failed> {
    let text = fs::read_to_string(document)?;
    for link in links(&text) {
        if link.starts_with("http") {
            continue;
        }
        let (path, heading) = link.split_once('#').unwrap_or((link, ""));
        let target = if path.is_empty() { document.into() } else { document.parent().unwrap().join(path) };
        if !target.exists() {
            return Err(format!("the link {link} leads nowhere").into());
        }
        if !heading.is_empty() && !headings(&fs::read_to_string(target)?).any(|other| other == heading) {
            return Err(format!("the link {link} names no heading").into());
        }
    }
    let folder = tempfile::tempdir()?;
    let help = ["run", "merge", "plan", "info", "bench", "demo", "devices"]
        .map(|command| shell(&format!("overshot {command} --help"), folder.path()));
    let help = help.into_iter().collect::<Result<Vec<_>, _>>()?.join("\n");
    let known: Vec<&str> = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).collect();
    match options(&text).find(|option| !known.contains(option)) {
        Some(option) => Err(format!("the command has no option {option}").into()),
        None => Ok(()),
    }
}

/// Whether `src/lib.rs` includes a document, so that its blocks of Rust are documentation tests, and none is left out.
fn check_compiled(document: &Path) -> Result<(), Failed> {
    let name = document.strip_prefix(root())?.display();
    if !fs::read_to_string(root().join("src/lib.rs"))?.contains(&format!("include_str!(\"../{name}\")")) {
        return Err(format!("src/lib.rs does not include {name}, so that its blocks of Rust are not compiled").into());
    }
    match blocks(&fs::read_to_string(document)?).iter().find(|block| block.info.contains("ignore")) {
        Some(block) => Err(format!("line {}: the block is not compiled", block.line).into()),
        None => Ok(()),
    }
}

/// Whether `docs/errors.md` has the messages of the sources.
fn check_errors() -> Result<(), Failed> {
    let mut found = Vec::new();
    sources(&root().join("src"), &mut found)?;
    let wrong = errors::differences(&fs::read_to_string(root().join("docs/errors.md"))?, &messages::messages(found));
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

/// Adds the sources in a folder, with their names, except those of tests.
fn sources(folder: &Path, found: &mut Vec<(String, String)>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("tests") {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            found.push((path.strip_prefix(root()).unwrap_or(&path).display().to_string(), fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

/// The checks above can fail.
fn mistakes() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    for (text, word) in [
        ("```sh\novershot run 'x = nothere(1)' --rows 5\n```\n", "no function"),
        ("```sh\novershot run 'sum(i)' --rows 5\n```\n\n```text\nsum(i) = 11\n```\n", "sum(i) = 10"),
        ("```sh gpu\ncargo run --example nothere\n```\n", "there is no examples/nothere.rs"),
        ("```sh\npython3 nothere.py\n```\n", "cannot run"),
        ("```sh gpu\novershot nothere\n```\n", "nothere"),
    ] {
        match run_text(text, folder.path()) {
            Err(error) if error.message().is_some_and(|message| message.contains(word)) => {}
            outcome => return Err(format!("{text}: {outcome:?}").into()),
        }
    }
    let link = folder.path().join("a.md");
    for text in ["[a](b.md)", "[a](a.md#b)", "write `--nothere`"] {
        fs::write(&link, text)?;
        if check_names(&link).is_ok() {
            return Err(format!("{text} is not found").into());
        }
    }
    let source = r#"
        #[derive(Error)] enum Error { #[error("one {a}: wait")] One { a: u8 } }
        fn two(problem: &str) -> Error { Error::Internal(problem.into()) }
        fn three(name: &str) -> String { format!("three of {name}") }
        const REMEDY: &str = "do four";
        fn run() -> Result<()> {
            let problem = format!("four {}", 4);
            let fail = |text: &str| Err(Error::Internal(text.into()));
            print("not this"); let other = "not that";
            if a { return fail("five times"); } else if b { return Err(two("two times")) }
            x.ok_or_else(|| Error::File { path: "not here", problem, remedy: REMEDY.into() })?;
            Err(Fault::new(words::three("not \
                so")))
        }
        #[cfg(test)] mod tests { fn f() { Err("not in tests") } }
    "#;
    let sources = vec![("src/words.rs".to_owned(), source.to_owned())];
    let found = messages::messages(sources);
    let expected = ["do four", "five times", "four …", "not so", "one …: wait", "three of …", "two times"];
    assert_eq!(found.keys().collect::<Vec<_>>(), expected);
    let table = "| a | b |\n| --- | --- |\n| one … | wait |\n| two times | (again) |\n| three of … | (one) |\n\
                 | five times | (\\*) |\n| four … | do four |\n| not so | (no) |\n";
    assert_eq!(errors::differences(table, &found), [""; 0]);
    let less = table.replace("| two times | (again) |\n", "| (twice) | (again) |\n| gone | (so) |\n");
    let wrong =
        ["line 4: has no message", "line 5: no message is 'gone'", "no row has the message of src/words.rs: two times"];
    assert_eq!(errors::differences(&less, &found), wrong);
    assert_eq!(markdown::rows("| a |\n| --- |\n| \\_b\\| `c` | d |\n"), [(3, vec!["_b| `c`".into(), "d".into()])]);
    assert_eq!(comparable("1 row in 5.3 ms, (97 % busy)"), comparable("1 row in\n12 µs, (3 % busy)"));
    assert_ne!(comparable("1 row in 5 ms"), comparable("2 rows in 5 ms"));
    Ok(())
}
