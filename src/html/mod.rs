//! Pictures of reports and plans in HTML, for notebooks and browsers.
//!
//! [`Report::html`](crate::Report::html) and [`Plan::html`](crate::Plan::html) return a fragment: one `<div>` with its
//! style and its drawings, without scripts, identifiers and anything from outside. It is what `_repr_html_` of a
//! notebook should return, and any number of them may stand in one document. [`page`] makes a whole page of it.
//!
//! Text has the colour of the document around it, and all other colours are visible on light and on dark backgrounds.

mod bars;
mod markup;
mod plan;
mod report;
mod stages;
mod style;
#[cfg(test)]
mod tests;
mod timeline;

/// Returns a page with this title and this fragment, as [`Report::html`](crate::Report::html) and
/// [`Plan::html`](crate::Plan::html) return one. It needs no other file. The title is text: it is escaped.
///
/// ```
/// use overshot::{DeviceChoice, Engine, Job, html};
/// let engine = Engine::builder().device(DeviceChoice::Cpu).build()?;
/// let report = engine.run(Job::eval("m = mean(x)")?.input("x", &[1.0, 2.0]).timeline(true))?;
/// let page = html::page("mean of x", &report.html());
/// assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<title>mean of x</title>"));
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("report.html");
/// std::fs::write(path, page)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn page(title: &str, fragment: &str) -> String {
    format!(
        "<!DOCTYPE html>\n\
         <html lang=\"en\">\n<head>\n\
         <meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <title>{}</title>\n\
         <style>{}</style>\n\
         </head>\n<body>\n{fragment}\n</body>\n</html>\n",
        markup::escaped(title, markup::LONG),
        style::PAGE,
    )
}
