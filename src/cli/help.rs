//! Help texts that do not belong to a single argument.

/// Examples of `run`. Each line works if its input files exist.
pub const EXAMPLES: &str = "\
Examples:
  overshot run 'mean(x), std(x)' x=x.npy
  overshot run 'c = a * b; mean(c)' a=a.npy b=b.npy c=c.npy
  overshot run 'z = (x - m) / s' x=x.f32:f32 m=5.0:f32 s=2:f32 z=z.npy
  overshot run 'y = sin(i * 0.001); max(y)' y=y.npy --rows 1e6
  overshot run 'mean(x), std(x)' x=x.npy --part 0/4 --partial p0
  overshot run saxpy.cu:saxpy x=x.npy y=y.npy a=2.5
  overshot run job.toml";

/// Examples of `merge`.
pub const MERGE: &str = "\
Examples:
  overshot run 'c = a * b; sum(c)' a=a.npy b=b.npy c=c.npy --part 0/2 --partial p0
  overshot run 'c = a * b; sum(c)' a=a.npy b=b.npy c=c.npy --part 1/2 --partial p1
  overshot merge p0 p1";

/// Examples of `matrices`.
#[cfg(feature = "matrices")]
pub const MATRICES: &str = "\
Examples:
  overshot matrices covariance x=x.npy covariance=c.npy
  overshot matrices pca --count 10 x=x.npy components=c.npy mean=m.npy
  overshot matrices project x=x.npy components=c.npy mean=m.npy y=y.npy
  overshot matrices linear x=x.npy t=t.npy --ridge 0.1
  overshot matrices kmeans --count 8 x=x.npy centers=c.npy labels=l.npy
  overshot matrices nearest --count 10 base=x.npy queries=q.npy indices=i.npy";

/// The exit codes, and errors as JSON.
pub const ENDINGS: &str = "\
Exit codes: 0 on success; 1 if the run failed, for example because of a file or a device; 2 if the arguments or the \
job are invalid. SIGINT (Ctrl-C), SIGTERM and SIGHUP stop a run cleanly: no output file appears, and the signal \
terminates the process (130, 143 and 129 in a shell). A second signal terminates it at once.

With --json, errors are JSON, too, one line on standard error: \
{\"error\": {\"kind\": \"file\", \"message\": \"…\", …}}. The kinds are: arguments, expression, kernel, job, table, \
partial, file, memory, device, verification, stopped, output, check, internal and other. Some kinds have additional \
fields.";
