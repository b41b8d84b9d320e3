//! Inputs by URL. A server of the tests speaks S3.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::server::{Fault, Says, Server};
use crate::tools::{CaseFolder, Done, RAN, done, results};
use crate::{Case, Outcome};

pub const CASES: &[Case] = &[
    ("URLs: objects of S3 are inputs", inputs),
    ("URLs: folders and patterns of S3 are one input", several),
    ("URLs: folders with keys in S3 are one input", partitions),
    ("URLs: arrays of a store in S3 are inputs", stores),
    ("URLs: names without an ending are looked up", names_without_ending),
    ("URLs: info shows what is at a URL", info),
    ("URLs: what a server does wrong is an error", faults),
    ("URLs: a request is sent again so often, and no more", sent_again),
    ("URLs: an array that changes is an error", changed),
    ("URLs: chunks that nobody may list are noted", unlisted),
    ("URLs: those that cannot be read are said", refused),
    ("URLs: a step of a job file runs again if an object changed", steps),
    ("URLs: a step of a job file runs again if nobody knows whether an object changed", steps_without_versions),
];

/// The command, with what it needs to find the server.
fn command(place: &CaseFolder, server: &Server, args: &[&str]) -> Command {
    let mut command = place.command(args);
    command.env("AWS_ENDPOINT", server.endpoint()).env("AWS_ALLOW_HTTP", "true").env("AWS_REGION", "us-east-1");
    command.env("AWS_ACCESS_KEY_ID", "user").env("AWS_SECRET_ACCESS_KEY", "secret").env("OVERSHOT_RETRIES", "1");
    command
}

fn overshot(place: &CaseFolder, server: &Server, args: &[&str]) -> Done {
    done(command(place, server, args).output().unwrap())
}

/// A server with the objects `b/x.npy`, the numbers below 1,000,000, and `b/x.f32`, those below 1000.
fn served(place: &CaseFolder) -> Server {
    let server = Server::start();
    place.npy("x.npy", &(0..1_000_000).map(f64::from).collect::<Vec<_>>());
    server.put_path("b/x.npy", &place.path("x.npy"));
    server.put("b/x.f32", (0..1000u16).flat_map(|row| f32::from(row).to_ne_bytes()).collect::<Vec<u8>>());
    server
}

fn inputs(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let server = served(&place);
    let run = ["run", "--json", "--device", device, "y = x + 1; sum(x), max(x)", "x=s3://b/x.npy", "y=y.npy"];
    let done = overshot(&place, &server, &run);
    assert_eq!(done.code, Some(0), "{done:?}");
    let report: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(results(&report), json!({"sum(x)": 499_999_500_000.0, "max(x)": 999_999.0}));
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.is_signed), "{requests:?}");
    assert_eq!(fs::metadata(place.path("y.npy")).unwrap().len(), 8_000_128);
    for x in ["x=s3://b/x.f32:f32".into(), format!("x={}:f32", server.url("b/x.f32"))] {
        let done = overshot(&place, &server, &["run", "--quiet", "--device", device, "sum(x)", &x]);
        assert_eq!((done.code, &*done.stdout), (Some(0), "sum(x) = 499500.0\n"), "{done:?}");
    }
    RAN
}

fn several(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let server = Server::start();
    for part in 1..=11u8 {
        server.put(&format!("b/in/part-{part}.u8"), [part, part]);
    }
    server.put("b/in/.hidden.u8", [99]);
    server.put("b/in/deeper/part-1.u8", [99]);
    server.put("b/odd/[1] 50%.u8", [5]);
    server.put("b/odder/[1]*1.u8", [5]);
    server.put("b/odder/[1]+1.u8", [6]);
    for (x, count) in [
        ("s3://b/in/part-*.u8:u8", 22),
        ("s3://b/i?/part-[1-3].u8:u8", 6),
        ("s3://b/odd/:u8", 1),
        ("s3://b/o[d]d/%5b1]%2050%25*.u8:u8", 1),
        ("s3://b/odder/%5B1]%2A?.u8:u8", 1),
    ] {
        let x = format!("x={x}");
        let run = ["run", "--quiet", "--device", device, "count(x > 0), sum(x * i)", &x];
        let done = overshot(&place, &server, &run);
        let parts = if count == 1 { vec![5] } else { (1..=count / 2).flat_map(|part| [part, part]).collect() };
        let sum: u64 = parts.iter().zip(0..).map(|(part, i)| part * i).sum();
        let expected = format!("count(x > 0) = {count}\nsum(x * i) = {sum}\n");
        assert_eq!((done.code, done.stdout), (Some(0), expected), "{x}: {}", done.stderr);
    }
    let done = overshot(&place, &server, &["run", "--device", device, "sum(x)", "x=s3://b/none-*.u8:u8"]);
    done.is_error(1, &["s3://b/none-*.u8: no object has a name of this pattern; check the URL"]);
    let done = overshot(&place, &server, &["run", "--device", device, "sum(x)", "x=s3://b/none/:u8"]);
    done.is_error(1, &["s3://b/none/: is a folder without objects; check the URL"]);
    let x = format!("x={}:u8", server.url("b/in/*.u8"));
    let done = overshot(&place, &server, &["run", "--device", device, "sum(x)", &x]);
    done.is_error(1, &["b/in/*.u8: stands for several files, and web servers do not list theirs"]);
    RAN
}

/// The rows of each file tell its year and its month, and are as many as its month.
fn partitions(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let server = Server::start();
    for (year, month) in [(1, 2), (1, 10), (2, 3), (10, 1)] {
        let name = format!("b/t/year={year}/month={month}/part-0.u8");
        server.put(&name, vec![year * 10 + month; usize::from(month)]);
    }
    // Marks of folders, and what is hidden.
    server.put("b/t/year=1/", []);
    server.put("b/t/year=1/month=2/", []);
    server.put("b/t/year=1/_SUCCESS", []);
    server.put("b/t/year=1/.part/month=2/part-0.u8", [99]);
    let text = "sum(t), sum(k.year), sum(k.month[k.year == 1]), sum(t - k.year * 10 - k.month)";
    for (t, expected) in [
        ("s3://b/t/", [12 * 2 + 20 * 10 + 23 * 3 + 101, 2 + 10 + 6 + 10, 104, 0]),
        ("s3://b/t/year=1*", [12 * 2 + 20 * 10 + 101, 2 + 10 + 10, 104, 0]),
        ("s3://b/t/*/month=1*/*.u8", [20 * 10 + 101, 10 + 10, 100, 0]),
    ] {
        let run = ["run", "--quiet", "--device", device, text, &format!("t={t}:u8"), &format!("k={t}:u8")];
        let done = overshot(&place, &server, &run);
        let [all, years, months, none] = expected;
        let lines = format!(
            "sum(t) = {all}\nsum(k.year) = {years}\nsum(k.month[k.year == 1]) = {months}\n\
             sum(t - k.year * 10 - k.month) = {none}\n"
        );
        assert_eq!((done.code, done.stdout), (Some(0), lines), "{t}: {}", done.stderr);
    }
    // A store may have such a name, too.
    array(&server, "b/s/k=1");
    let run = ["run", "--quiet", "--device", device, "sum(s)", "s=s3://b/s/"];
    let done = overshot(&place, &server, &run);
    assert_eq!((done.code, &*done.stdout), (Some(0), "sum(s) = 3160.0\n"), "{done:?}");
    server.put("b/t/part-0.u8", [1]);
    let done = overshot(&place, &server, &["run", "--device", device, "sum(t)", "t=s3://b/t/:u8"]);
    done.is_error(1, &["is in folders with other keys (year, month) than s3://b/t/part-0.u8 (none)"]);
    RAN
}

/// Adds an array of 8 rows and 10 columns, the numbers of the elements, in chunks of 4 rows and 5 columns.
fn array(server: &Server, name: &str) {
    let described = json!({
        "zarr_format": 3, "node_type": "array", "shape": [8, 10], "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 5]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}}, "fill_value": -1.0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "attributes": {},
    });
    server.put(&format!("{name}/zarr.json"), described.to_string());
    for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let values =
            (i * 4..i * 4 + 4).flat_map(|row| (j * 5..j * 5 + 5).map(move |column| (row * 10 + column) as f32));
        server.put(&format!("{name}/c.{i}.{j}"), values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>());
    }
}

fn stores(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let server = Server::start();
    array(&server, "b/s.zarr/t");
    array(&server, "b/s.zarr/deeper/p");
    server.put("b/s.zarr/zarr.json", r#"{"zarr_format": 3, "node_type": "group"}"#);
    server.put("b/s.zarr/deeper/zarr.json", r#"{"zarr_format": 3, "node_type": "group"}"#);
    for (text, s) in
        [("sum(s.t)", "s=s3://b/s.zarr"), ("sum(s)", "s=s3://b/s.zarr/t"), ("sum(s)", "s=s3://b/s.zarr/deeper")]
    {
        let done = overshot(&place, &server, &["run", "--quiet", "--device", device, text, s]);
        assert_eq!((done.code, done.stdout), (Some(0), format!("{text} = 3160.0\n")), "{s}: {}", done.stderr);
    }
    let done = overshot(&place, &server, &["run", "--device", device, "sum(s)", "s=s3://b/s.zarr"]);
    done.is_error(1, &["s3://b/s.zarr: is a Zarr group with the arrays deeper/p, t", "as in s3://b/s.zarr/deeper/p"]);
    // Who may not list the store reads arrays by their names.
    for args in [["run", "--device", device, "sum(s)", "s=s3://b/s.zarr"].as_slice(), &["info", "s3://b/s.zarr"]] {
        server.set(Fault::NoList(0));
        let done = overshot(&place, &server, args);
        let text = format!("{}{}", done.stdout, done.stderr);
        assert!(done.code == Some(1) && text.contains("credentials in the environment"), "{done:?}");
    }
    let done = overshot(&place, &server, &["run", "--device", device, "sum(s.t)", "s=s3://b/s.zarr"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    RAN
}

/// Names without an ending may be those of stores.
fn names_without_ending(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let server = Server::start();
    server.put("b/x", [3; 10]);
    let newer = r#"{"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "|u1", "fill_value": 7, "order": "C","#;
    server.put("b/t/.zarray", format!(r#"{newer} "compressor": null, "filters": null}}"#));
    server.put("b/t/0", [5, 5, 5, 6]);
    for fault in [Fault::None, Fault::Hidden, Fault::Page] {
        server.set(fault);
        for (name, sum) in [("x:u8", 30), ("t", 21)] {
            let x = format!("x={}", server.url(&format!("b/{name}")));
            let done = overshot(&place, &server, &["run", "--quiet", "--device", device, "sum(x)", &x]);
            assert_eq!((done.code, done.stdout), (Some(0), format!("sum(x) = {sum}\n")), "{fault:?}: {}", done.stderr);
        }
    }
    // One answer is enough to know that there is none: once when the name may be one of several, and once to open it.
    server.set(Fault::Status(500, usize::MAX));
    server.requests();
    let x = format!("x={}:u8", server.url("b/x"));
    let mut command = command(&place, &server, &["run", "--device", device, "sum(x)", &x]);
    let done = done(command.env("OVERSHOT_RETRIES", "0").output().unwrap());
    done.is_error(1, &["b/x: cannot be opened", "500"]);
    assert_eq!(server.requests().len(), 2);
    RAN
}

fn info(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let server = served(&place);
    array(&server, "b/s.zarr/t");
    server.put("b/s.zarr/zarr.json", r#"{"zarr_format": 3, "node_type": "group"}"#);
    let names = ["info", "s3://b/x.npy", "s3://b/x.f32:f32", "s3://b/s.zarr", "s3://b/none.npy"];
    let done = overshot(&place, &server, &names);
    assert_eq!(done.code, Some(1), "{done:?}");
    for words in [
        "s3://b/x.npy: 1,000,000 rows of f64, 8.0 MB\n",
        "s3://b/x.f32: 1,000 rows of f32, 4.0 kB\n",
        "  array t: f32, shape (8, 10); zarr 3, chunks (4, 5); bytes\n",
        "s3://b/none.npy\n  cannot be opened (Object at location none.npy not found",
    ] {
        assert!(done.stdout.contains(words), "{words}: {}", done.stdout);
    }
    RAN
}

fn faults(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let server = served(&place);
    let always = usize::MAX;
    for (fault, words) in [
        (Fault::Status(503, always), "503"),
        (Fault::Status(403, always), "credentials in the environment"),
        (Fault::Silent, "cannot be opened"),
        (Fault::Cut(1000, always), "cannot be read"),
        (Fault::Short(1000), "fewer bytes than it was asked for"),
        (Fault::Long(10), "more bytes than it was asked for"),
        (Fault::Stalled(10), "more bytes than it was asked for"),
        (Fault::OtherRange, "Requested"),
        (Fault::WholeObject, "copy the data to a disk first: the server does not send parts of files"),
        (Fault::Changed(2), "changed while it was read"),
    ] {
        server.set(fault);
        let run = ["run", "--device", device, "y = x", "x=s3://b/x.npy", "y=y.npy"];
        let mut command = command(&place, &server, &run);
        if matches!(fault, Fault::Silent | Fault::Stalled(_)) {
            // All requests that are tried again end then.
            command.env("AWS_TIMEOUT", "300ms");
        }
        let done = done(command.output().unwrap());
        assert_eq!(done.code, Some(1), "{fault:?}: {done:?}");
        assert!(done.stderr.contains("s3://b/x.npy: ") && done.stderr.contains(words), "{fault:?}: {}", done.stderr);
        assert!(!place.path("y.npy").exists(), "{fault:?}");
    }
    server.set(Fault::Silent);
    let x = format!("x={}", server.url("b/x.npy"));
    let mut command = command(&place, &server, &["run", "--device", device, "sum(x)", &x]);
    let done = done(command.env("HTTP_TIMEOUT", "300ms").output().unwrap());
    done.is_error(1, &["b/x.npy: cannot be opened", "check the URL, the network and the server"]);
    // What another attempt makes up for.
    for fault in [Fault::Status(503, 1), Fault::Cut(100_000, 1)] {
        server.set(fault);
        let run = ["run", "--quiet", "--device", device, "y = x", "x=s3://b/x.npy", "y=y.npy", "--force"];
        let done = overshot(&place, &server, &run);
        assert_eq!(done.code, Some(0), "{fault:?}: {done:?}");
        assert!(
            fs::read(place.path("y.npy")).unwrap()[128..] == fs::read(place.path("x.npy")).unwrap()[128..],
            "{fault:?}"
        );
    }
    RAN
}

fn sent_again(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let server = served(&place);
    let always = usize::MAX;
    let faults = [Fault::Status(503, always), Fault::Cut(10, always), Fault::Short(10), Fault::Long(10)];
    for (says, fault) in [Says::TagAndTime, Says::Time].into_iter().flat_map(|says| faults.map(|fault| (says, fault))) {
        server.says(says);
        server.set(fault);
        server.requests();
        let x = format!("x={}:f32", server.url("b/x.f32"));
        let mut command = command(&place, &server, &["run", "--device", device, "sum(x)", &x]);
        let done = done(command.env("OVERSHOT_RETRIES", "2").output().unwrap());
        assert_eq!(done.code, Some(1), "{fault:?}: {done:?}");
        // The length is asked for first, which only the first fault hinders.
        let wanted = if matches!(fault, Fault::Status(..)) { "HEAD" } else { "GET" };
        let requests = server.requests();
        let count = requests.iter().filter(|request| request.method == wanted).count();
        assert_eq!(count, 3, "{says:?} {fault:?}: {requests:?}");
    }
    RAN
}

/// Its chunks are objects of their own, so a list of all of them tells.
fn changed(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let server = Server::start();
    array(&server, "b/t.zarr");
    let mut runs = Vec::new();
    for bodies in 0..20 {
        server.set(Fault::Changed(bodies));
        let run = ["run", "--quiet", "--device", device, "sum(t)", "t=s3://b/t.zarr"];
        let done = overshot(&place, &server, &run);
        match done.code {
            Some(0) => assert_eq!(done.stdout, "sum(t) = 3160.0\n", "{bodies}"),
            _ => done.is_error(1, &["s3://b/t.zarr: "]),
        }
        runs.push(done.code == Some(0));
    }
    assert!(runs.contains(&true) && runs.contains(&false), "{runs:?}");
    RAN
}

fn unlisted(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let server = Server::start();
    array(&server, "b/t.zarr");
    let note = "s3://b/t.zarr has chunks that cannot be listed, so a change of them may not be noticed";
    for (fault, is_noted) in [(Fault::None, false), (Fault::NoList(0), true)] {
        server.set(fault);
        let done = overshot(&place, &server, &["run", "--json", "--device", device, "sum(t)", "t=s3://b/t.zarr"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let report: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(report["notes"].as_array().unwrap().contains(&json!(note)), is_noted, "{report}");
    }
    RAN
}

fn refused(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let server = served(&place);
    let web = format!("x={}?signature=secret", server.url("b/x.npy"));
    let user = format!("x={}", web.replace("http://", "http://user:secret@").trim_start_matches("x="));
    for (args, words) in [
        (["y = x", "x=s3://b/x.npy", "y=s3://b/y.npy"], "s3://b/y.npy: is a URL, and outputs are files"),
        (["y = x", "x=ftp://b/x.npy", "y=y.npy"], "ftp://b/x.npy: is a URL of another kind"),
        (["y = x", "x=s3://b/none.npy", "y=y.npy"], "check the URL; that of a folder ends with '/'"),
        (["y = x", &web, "y=y.npy"], "b/x.npy: has a query, which is not sent to the server"),
        (["y = x", &user, "y=y.npy"], "b/x.npy: has a user's name, which is not sent to the server"),
        (["y = x", "x=s3://b//x.npy", "y=y.npy"], "is no URL of an object"),
    ] {
        let done = overshot(&place, &server, &[&["run", "--device", device], &args[..]].concat());
        assert!(done.code != Some(0) && done.stderr.contains(words), "{words}: {done:?}");
        assert!(!done.stderr.contains("secret"), "{done:?}");
        assert!(!place.path("y.npy").exists());
    }
    RAN
}

fn steps(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let server = served(&place);
    let step = "[[step]]\nname = \"sum\"\nrun = \"sum(x)\"\nfiles = { x = \"s3://b/x.npy\" }\n";
    fs::write(place.path("job.toml"), format!("[options]\ndevice = \"{device}\"\n{step}")).unwrap();
    let run = || overshot(&place, &server, &["run", "job.toml"]);
    let (first, second) = (run(), run());
    assert_eq!((first.code, second.code), (Some(0), Some(0)), "{first:?} {second:?}");
    let is_body = |request: &crate::server::Request| request.method == "GET";
    server.requests();
    let third = run();
    assert!(third.code == Some(0) && !server.requests().iter().any(is_body), "{third:?}");
    place.npy("x.npy", &[2.0; 10]);
    server.put_path("b/x.npy", &place.path("x.npy"));
    let done = run();
    assert!(done.stdout.contains("20.0") && server.requests().iter().any(is_body), "{done:?}");
    RAN
}

fn steps_without_versions(device: &str) -> Outcome {
    let place = CaseFolder::new(device);
    let server = served(&place);
    server.says(Says::Nothing);
    let x = server.url("b/x.npy");
    let step = format!("[[step]]\nname = \"sum\"\nrun = \"sum(x)\"\nfiles = {{ x = \"{x}\" }}\n");
    fs::write(place.path("job.toml"), format!("[options]\ndevice = \"{device}\"\n{step}")).unwrap();
    let done = overshot(&place, &server, &["run", "job.toml"]);
    assert!(done.code == Some(0) && done.stdout.contains("499999500000.0"), "{done:?}");
    place.npy("x.npy", &vec![2.0; 1_000_000]);
    server.put_path("b/x.npy", &place.path("x.npy"));
    let plan = overshot(&place, &server, &["plan", "job.toml"]);
    assert!(plan.stdout.contains(&format!("input {x} may have changed")), "{plan:?}");
    let done = overshot(&place, &server, &["run", "job.toml"]);
    assert!(done.code == Some(0) && done.stdout.contains("2000000.0"), "{done:?}");
    RAN
}
