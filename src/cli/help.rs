//! The parts of the help that belong to no single argument.

/// Examples of `run`, each a line that works if its files are there.
pub const EXAMPLES: &str = "\
Examples:
  overshot run 'mean(x), std(x)' x=x.npy
  overshot run 'c = a * b; mean(c)' a=a.npy b=b.npy c=c.npy
  overshot run 'z = (x - m) / s' x=x.f32:f32 m=5.0:f32 s=2:f32 z=z.npy
  overshot run 'y = sin(i * 0.001); max(y)' y=y.npy --rows 1e6
  overshot run saxpy.cu:saxpy x=x.npy y=y.npy a=2.5";

/// How the process ends.
pub const ENDINGS: &str = "\
Exit codes: 0 if all is done; 1 if it failed on the way, at a file or a device, say; 2 if it cannot be run as it was asked \
for. SIGINT (Ctrl-C), SIGTERM and SIGHUP stop a run in good order: no output appears, and the process ends by the signal \
(130, 143 and 129 in a shell). A second signal ends it at once.

With --json, an error is JSON too, a line on standard error: {\"error\": {\"kind\": \"file\", \"message\": \"…\", …}}. The kinds \
are arguments, expression, kernel, job, file, memory, device, stopped, output and check; some have further fields.";
