//! Tests the spans that workers trace. It is alone in its process, because the subscriber decides for all threads which
//! spans are recorded.

use std::sync::{Arc, Mutex};

use overshot::{DeviceChoice, Engine, Error, Job, device::Emulated};
use tracing_subscriber::fmt::format::FmtSpan;

/// Collects the traced spans.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn spans_tell_chunk_device_and_worker() -> Result<(), Error> {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_span_events(FmtSpan::NEW)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let x = vec![1.0f64; 20_000];
    let engine = Engine::builder().device(DeviceChoice::from(Emulated::new())).chunk(1).workers(2).build()?;
    // The workers of an emulated device run on this thread, one step at a time, so its subscriber sees them.
    let run = || engine.run(Job::eval("sum(x)")?.input("x", &x));
    let report = tracing::subscriber::with_default(subscriber, run)?;
    let text = String::from_utf8(log.0.lock().expect("no panics").clone()).expect("text");
    let count = |name: &str| text.lines().filter(|line| line.contains(name)).count() as u64;
    assert_eq!((count(":send{chunk="), count(":drain{chunk=")), (report.chunks, report.chunks), "{text}");
    assert!(text.contains("chunk=4 row=16384 rows=3616 device=\"emulated\" worker="), "{text}");
    assert!(text.contains("worker=0") && text.contains("worker=1"), "{text}");
    Ok(())
}
