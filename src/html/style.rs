//! Style sheets and colours.

/// The style of a fragment. Notebooks have rules for tables of their own, such as
/// `.jp-RenderedHTMLCommon:not(…) td`: the class is repeated so that these rules are stronger.
pub(super) const FRAGMENT: &str = "\
.overshot.overshot{font:13px/1.45 system-ui,sans-serif;max-width:760px;font-variant-numeric:tabular-nums}
.overshot.overshot h3,.overshot.overshot h4{font-size:13px;font-weight:600;line-height:1.45;margin:18px 0 4px}
.overshot.overshot h3{font-weight:400;margin:0}
.overshot.overshot p{margin:4px 0}
.overshot.overshot code{font:12px/1.45 ui-monospace,monospace;color:inherit;background:none;padding:0;\
overflow-wrap:anywhere;unicode-bidi:isolate}
.overshot.overshot pre{margin:6px 0 10px;padding:0;white-space:pre-wrap;background:none;color:inherit}
.overshot.overshot pre code{font-size:14px}
.overshot.overshot small{font-size:12px;opacity:.72}
.overshot.overshot dl{display:flex;flex-wrap:wrap;gap:8px 28px;margin:8px 0}
.overshot.overshot dt{font-size:18px;font-weight:600;line-height:1.25}
.overshot.overshot dd{font-size:12px;margin:0;opacity:.72}
.overshot.overshot table{border-collapse:collapse;width:auto;margin:2px 0 6px;border:none;font-size:13px}
.overshot.overshot table tr{background:none}
.overshot.overshot table th,.overshot.overshot table td{text-align:right;vertical-align:top;border:none;\
padding:2px 0 2px 28px;font-weight:400;white-space:nowrap;background:none;color:inherit;max-width:none}
.overshot.overshot table th:first-child,.overshot.overshot table td:first-child{text-align:left;padding-left:0;\
white-space:normal}
.overshot.overshot table thead th{font-size:12px;opacity:.72;border-bottom:1px solid}
.overshot.overshot table.overshot-full{width:100%}
.overshot.overshot table.overshot-full th,.overshot.overshot table.overshot-full td{padding-left:10px;\
vertical-align:middle}
.overshot.overshot table.overshot-full th:first-child,.overshot.overshot table.overshot-full td:first-child{\
padding-left:0;white-space:nowrap}
.overshot.overshot table .overshot-wide{width:100%;vertical-align:middle}
.overshot.overshot table .overshot-hot th,.overshot.overshot table .overshot-hot td{font-weight:600}
.overshot.overshot table.overshot-lanes th,.overshot.overshot table.overshot-lanes td{padding-top:1px;\
padding-bottom:1px;font-size:12px;line-height:1.3}
.overshot.overshot svg{display:block;max-width:none}
.overshot.overshot svg+svg{margin-top:2px}
@media (max-width:480px){.overshot.overshot table th,.overshot.overshot table td{padding-left:12px}}
.overshot.overshot .overshot-key{display:inline-block;margin-right:14px;white-space:nowrap}
.overshot.overshot .overshot-key svg{display:inline-block;vertical-align:-1px;margin-right:5px}
.overshot.overshot .overshot-verdict{border-left:3px solid #d9534f;padding:1px 0 1px 9px}
.overshot.overshot ul{margin:2px 0;padding-left:18px}
";

/// The style of a page around a fragment.
pub(super) const PAGE: &str = "\
:root{color-scheme:light dark}
body{margin:24px auto;padding:0 16px;max-width:760px;background:#fff;color:#1c1e21}
@media (prefers-color-scheme:dark){body{background:#16181c;color:#e4e6ea}}
@media (max-width:480px){body{margin:12px auto;padding:0 12px}}
";

/// The colours of stages in their order. Each is visible on white and on black.
pub(super) const STAGES: [(&str, &str); 10] = [
    ("fill", "#8a6fd1"),
    ("copy in", "#2f86c9"),
    ("kernel", "#2f9957"),
    ("compute", "#2f9957"),
    ("product", "#2f9957"),
    ("copy out", "#c27a12"),
    ("copy sum", "#c27a12"),
    ("collect", "#8a6fd1"),
    ("absorb", "#c9588f"),
    ("drain", "#c9588f"),
];

/// Colours of devices and other things without a meaning of their own.
pub(super) const OTHERS: [&str; 6] = ["#2f86c9", "#c27a12", "#2f9957", "#c9588f", "#8a6fd1", "#7d8590"];

/// The colour of a stage.
pub(super) fn colour(stage: &str) -> &'static str {
    STAGES.iter().find(|(name, _)| *name == stage).map_or(OTHERS[OTHERS.len() - 1], |(_, colour)| colour)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The relative luminance of a colour, as in WCAG 2.
    fn luminance(colour: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    #[test]
    fn colours_are_visible_on_light_and_dark_backgrounds() {
        for colour in STAGES.iter().map(|(_, colour)| colour).chain(&OTHERS) {
            for background in ["#ffffff", "#16181c", "#000000"] {
                let (a, b) = (luminance(colour), luminance(background));
                let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(contrast >= 3.0, "{colour} on {background}: {contrast:.2}");
            }
        }
    }
}
