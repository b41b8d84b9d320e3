//! A server on the loopback interface. It speaks HTTP and as much of S3 as reading needs: `GET` with `Range` and
//! `If-Match`, `HEAD`, and `ListObjectsV2` in pages. It can be told to do what servers should not.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Objects in a page of a list.
const PAGE: usize = 2;
const MODIFIED: &str = "Wed, 25 Nov 2026 10:00:00 GMT";

/// What the server does instead of what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "each test program has its own ones")]
pub enum Fault {
    None,
    /// Answers the next requests with this status.
    Status(u16, usize),
    /// Ends the connection after so many bytes of a body, for the next requests.
    Cut(usize, usize),
    /// Says that a body is as long as this, and sends as much.
    Short(usize),
    /// Sends so many bytes more than it was asked for, and says so.
    Long(usize),
    /// Says that the body is longer than what it sends, and waits.
    Stalled(usize),
    /// Sends the bytes of another range, and says so.
    OtherRange,
    /// Sends the whole object.
    WholeObject,
    /// Changes the object after so many bodies.
    Changed(usize),
    /// As before, and does not compare tags.
    ChangedAndIgnoresTags(usize),
    /// Has no tags, and changes the time of the object after so many bodies.
    ChangedTime(usize),
    /// Has tags that are weak.
    WeakTags,
    /// Says that what is not there may not be read, as stores do that may not be listed.
    Hidden,
    /// Has a page for every name.
    Page,
    /// Lists its objects so often, and then refuses to.
    NoList(usize),
    /// Never answers.
    Silent,
}

/// What the server says of the version of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(dead_code, reason = "each test program has its own ones")]
pub enum Says {
    #[default]
    TagAndTime,
    Time,
    Nothing,
}

/// A request, as the server has seen it.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// The name of the object, without a slash in front, and the query.
    pub name: String,
    pub range: Option<(u64, u64)>,
    /// Whether it is signed, as those to S3 are.
    pub is_signed: bool,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Arc<Vec<u8>>>,
    /// The fault, and how often it has still to occur, or the bodies until it does.
    fault: Option<(Fault, usize)>,
    /// The versions of all objects.
    version: usize,
    says: Says,
    requests: Vec<Request>,
}

#[derive(Clone)]
pub struct Server {
    address: String,
    state: Arc<Mutex<State>>,
}

impl Server {
    pub fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server { address: listener.local_addr().unwrap().to_string(), state: Arc::default() };
        let own = server.clone();
        // It lives as long as the process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let own = own.clone();
                thread::spawn(move || own.serve(stream));
            }
        });
        server
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an object; `name` begins with the bucket.
    pub fn put(&self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.state().objects.insert(name.into(), Arc::new(bytes.into()));
    }

    /// Adds a file, or all files of a folder.
    #[allow(dead_code, reason = "each test program has its own ones")]
    pub fn put_path(&self, name: &str, path: &Path) {
        if !path.is_dir() {
            return self.put(name, std::fs::read(path).unwrap());
        }
        for entry in std::fs::read_dir(path).unwrap().flatten() {
            self.put_path(&format!("{name}/{}", entry.file_name().to_str().unwrap()), &entry.path());
        }
    }

    pub fn set(&self, fault: Fault) {
        let times = match fault {
            Fault::Status(_, times) | Fault::Cut(_, times) => times,
            Fault::Changed(times) | Fault::ChangedAndIgnoresTags(times) | Fault::ChangedTime(times) => times,
            Fault::NoList(times) => times,
            _ => usize::MAX,
        };
        let mut state = self.state();
        (state.fault, state.version) = (Some((fault, times)), 0);
    }

    pub fn says(&self, says: Says) {
        self.state().says = says;
    }

    /// The URL of a name at the web server. `http://` is in front.
    pub fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.endpoint())
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Takes the requests so far.
    pub fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.state().requests)
    }

    fn serve(&self, stream: TcpStream) {
        let Ok(writer) = stream.try_clone() else { return };
        let (mut reader, mut writer) = (BufReader::new(stream), writer);
        while let Ok(Some((request, tag))) = read_request(&mut reader) {
            match self.answer(&request, tag.as_deref(), &mut writer) {
                Ok(true) => {}
                Ok(false) | Err(_) => break,
            }
        }
        let _ = writer.shutdown(std::net::Shutdown::Both);
    }

    /// Answers a request. Returns whether the connection stays.
    fn answer(&self, request: &Request, tag: Option<&str>, to: &mut TcpStream) -> io::Result<bool> {
        let mut state = self.state();
        state.requests.push(request.clone());
        let (fault, left) = state.fault.unwrap_or((Fault::None, 0));
        let is_body = request.method == "GET" && !request.name.contains('?');
        match fault {
            Fault::Silent => {
                drop(state);
                // Until the other side ends the connection.
                let _ = to.read(&mut [0; 1]);
                return Ok(false);
            }
            Fault::Status(status, _) if left > 0 => {
                state.fault = Some((fault, left - 1));
                drop(state);
                return plain(to, status, "the server has a <Code>Fault</Code>", &request.method).map(|()| true);
            }
            Fault::Changed(_) | Fault::ChangedAndIgnoresTags(_) | Fault::ChangedTime(_) if is_body => {
                if left == 0 {
                    state.version = 1;
                } else {
                    state.fault = Some((fault, left - 1));
                }
            }
            Fault::Cut(_, _) if is_body => state.fault = Some((fault, left.saturating_sub(1))),
            Fault::NoList(_) if request.name.contains('?') => {
                if left == 0 {
                    drop(state);
                    return plain(to, 403, "the list has a <Code>Fault</Code>", &request.method).map(|()| true);
                }
                state.fault = Some((fault, left - 1));
            }
            _ => {}
        }
        if let Some((bucket, query)) = request.name.split_once('?') {
            let text = list(&state, bucket.trim_end_matches('/'), query);
            drop(state);
            return plain(to, 200, &text, &request.method).map(|()| true);
        }
        let (object, version, says) = (state.objects.get(&request.name).cloned(), state.version, state.says);
        drop(state);
        let Some(object) = object else {
            let (status, text) = match fault {
                Fault::Hidden => (403, "access denied"),
                Fault::Page => (200, "<!DOCTYPE html>"),
                _ => (404, "no such object"),
            };
            return plain(to, status, text, &request.method).map(|()| true);
        };
        let weak = if fault == Fault::WeakTags { "W/" } else { "" };
        let own_tag = format!("{weak}{}", tag_of(&object, version));
        if tag.is_some_and(|tag| tag != own_tag || tag.starts_with("W/"))
            && !matches!(fault, Fault::ChangedAndIgnoresTags(_))
        {
            return plain(to, 412, "the object has another tag", &request.method).map(|()| true);
        }
        // Another version has other bytes.
        let bytes: Vec<u8> = object.iter().map(|byte| byte ^ version as u8).collect();
        let len = bytes.len() as u64;
        let mut range = request.range.filter(|_| fault != Fault::WholeObject);
        if range.is_some_and(|(first, last)| first >= len || last < first) {
            return plain(to, 416, "no such range", &request.method).map(|()| true);
        }
        if let (Fault::OtherRange, Some((first, last))) = (fault, &mut range) {
            let shift = u64::from(*first > 0);
            (*first, *last) = (*first - shift, *last - shift.max(u64::from(*last > *first)));
        }
        let (first, end) = range.map_or((0, len), |(first, last)| (first, (last + 1).min(len)));
        let mut body = bytes[first as usize..end as usize].to_vec();
        let mut said = body.len();
        if is_body {
            match fault {
                Fault::Short(most) => {
                    body.truncate(most);
                    said = body.len();
                }
                Fault::Long(more) => {
                    body.resize(said + more, 7);
                    said = body.len();
                }
                Fault::Stalled(more) => said += more,
                _ => {}
            }
        }
        let mut head = match range {
            Some(_) => format!("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {first}-{}/{len}\r\n", end - 1),
            None => "HTTP/1.1 200 OK\r\n".into(),
        };
        match fault {
            Fault::ChangedTime(_) if version == 1 => head += "Last-Modified: Thu, 26 Nov 2026 10:00:00 GMT\r\n",
            _ if says == Says::Nothing => {}
            _ => {
                let _ = write!(head, "Last-Modified: {MODIFIED}\r\n");
            }
        }
        if says == Says::TagAndTime && !matches!(fault, Fault::ChangedTime(_)) {
            let _ = write!(head, "ETag: {own_tag}\r\n");
        }
        let _ = write!(head, "Accept-Ranges: bytes\r\nContent-Length: {said}\r\n\r\n");
        to.write_all(head.as_bytes())?;
        if request.method == "HEAD" {
            return Ok(true);
        }
        if let (Fault::Cut(most, _), 1..) = (fault, left) {
            to.write_all(&body[..most.min(body.len())])?;
            return Ok(false);
        }
        to.write_all(&body)?;
        if matches!(fault, Fault::Stalled(_)) {
            let _ = to.read(&mut [0; 1]);
            return Ok(false);
        }
        Ok(true)
    }
}

/// Reads the head of a request: there are no bodies. Also returns the tag that the object must have.
fn read_request(from: &mut impl BufRead) -> io::Result<Option<(Request, Option<String>)>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let mut name = decoded(path.trim_start_matches('/'));
    if let Some(query) = query {
        name = format!("{name}?{query}");
    }
    let mut request = Request { method, name, range: None, is_signed: false };
    let mut tag = None;
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let Some((key, value)) = line.trim_end().split_once(": ") else { return Ok(Some((request, tag))) };
        match &*key.to_ascii_lowercase() {
            "range" => {
                let range = value.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
                request.range = range.and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
            }
            "authorization" => request.is_signed = value.starts_with("AWS4-HMAC-SHA256 Credential=user/"),
            "if-match" => tag = Some(value.to_owned()),
            _ => {}
        }
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let number = after.get(..2).and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        (bytes, rest) = match (first, number) {
            (b'%', Some(number)) => ([&bytes[..], &[number]].concat(), &after[2..]),
            _ => ([&bytes[..], &[*first]].concat(), after),
        };
    }
    String::from_utf8(bytes).unwrap()
}

/// A page of the names of a bucket: those of objects, and of folders at the delimiter.
fn list(state: &State, bucket: &str, query: &str) -> String {
    let fields: BTreeMap<&str, String> =
        query.split('&').filter_map(|field| field.split_once('=')).map(|(key, value)| (key, decoded(value))).collect();
    let prefix = fields.get("prefix").cloned().unwrap_or_default();
    let begin = format!("{bucket}/{prefix}");
    let mut names: Vec<(String, Option<(usize, String)>)> = Vec::new();
    for (name, bytes) in state.objects.iter().filter(|(name, _)| name.starts_with(&begin)) {
        let own = &name[bucket.len() + 1..];
        let rest = &own[prefix.len()..];
        let folder = rest.split_once('/').filter(|_| fields.contains_key("delimiter"));
        let found = match folder {
            Some((folder, _)) => (format!("{prefix}{folder}/"), None),
            None => (own.to_owned(), Some((bytes.len(), tag_of(bytes, state.version)))),
        };
        if names.last() != Some(&found) {
            names.push(found);
        }
    }
    let first = fields.get("continuation-token").map_or(0, |token| token.parse().unwrap());
    let end = (first + PAGE).min(names.len());
    let mut text = format!("<ListBucketResult><Name>{bucket}</Name><IsTruncated>{}</IsTruncated>", end < names.len());
    if end < names.len() {
        let _ = write!(text, "<NextContinuationToken>{end}</NextContinuationToken>");
    }
    for (name, object) in &names[first..end] {
        let _ = match object {
            None => write!(text, "<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"),
            Some((size, tag)) => write!(
                text,
                "<Contents><Key>{name}</Key><Size>{size}</Size><ETag>{tag}</ETag>\
                 <LastModified>2026-11-25T10:00:00.000Z</LastModified></Contents>"
            ),
        };
    }
    text + "</ListBucketResult>"
}

/// The tag of a version of an object.
fn tag_of(bytes: &[u8], version: usize) -> String {
    let sum =
        bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    format!("\"{sum:x}-{version}\"")
}

fn plain(to: &mut TcpStream, status: u16, text: &str, method: &str) -> io::Result<()> {
    let body = if method == "HEAD" { "" } else { text };
    write!(to, "HTTP/1.1 {status} Fault\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
