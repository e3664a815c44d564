//! What the operator sees, and the same as JSON.

use anstyle::{AnsiColor, Style};
use domain::visible;
use serde_json::{Value, json};

use super::finding::{Finding, Level, many};

/// Lines are at most this wide, unless a word is longer.
const MAX_LINE_CHARS: usize = 80;
/// Where a finding's text begins: after the area, the mark and their blanks.
const INDENT_CHARS: usize = 15;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

/// The style and the mark of a level.
const fn style(level: Level) -> (Style, &'static str) {
    match level {
        Level::Ok => (AnsiColor::Green.on_default(), "✓"),
        Level::Note => (DIM, "·"),
        Level::Warning => (AnsiColor::Yellow.on_default(), "!"),
        Level::Error => (AnsiColor::Red.on_default().bold(), "✗"),
    }
}

/// A line for each finding, then what is wrong once more, with what mends it.
pub(super) fn text(findings: &[Finding]) -> String {
    let (mut text, mut last) = (String::new(), "");
    for finding in findings {
        let area = if finding.area() == last { "" } else { finding.area() };
        last = finding.area();
        let (style, mark) = style(finding.level);
        let lines = wrapped(&finding.text, MAX_LINE_CHARS - INDENT_CHARS).join(&format!("\n{:INDENT_CHARS$}", ""));
        let lines = if finding.level == Level::Note { format!("{DIM}{lines}{DIM:#}") } else { lines };
        text += &format!("{BOLD}{area:11}{BOLD:#} {style}{mark}{style:#}  {lines}\n");
    }
    text + &summary(findings)
}

fn summary(findings: &[Finding]) -> String {
    let of = |level| findings.iter().filter(move |finding| finding.level == level);
    let (errors, warnings) = (of(Level::Error).count(), of(Level::Warning).count());
    let [good, warned, bad] = [Level::Ok, Level::Warning, Level::Error].map(|level| style(level).0);
    let mut text = match (errors, warnings) {
        (0, 0) => format!("\n{good}Nothing is wrong.{good:#}\n"),
        (0, _) => format!("\n{warned}Nothing is wrong; {}:{warned:#}\n", many(warnings, "warning")),
        (_, 0) => format!("\n{bad}{}:{bad:#}\n", many(errors, "error")),
        _ => format!("\n{bad}{}, {}:{bad:#}\n", many(errors, "error"), many(warnings, "warning")),
    };
    for finding in of(Level::Error).chain(of(Level::Warning)) {
        let (style, mark) = style(finding.level);
        let lines = wrapped(&format!("{}: {}", finding.id, finding.text), MAX_LINE_CHARS - 4).join("\n    ");
        text += &format!("\n  {style}{mark}{style:#} {lines}\n");
        let remedy = finding.remedy.as_deref().unwrap_or_default();
        text += &format!("    → {}\n", wrapped(remedy, MAX_LINE_CHARS - 6).join("\n      "));
    }
    text
}

/// Lines of whole words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in visible(text).split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The same as one JSON document.
pub(super) fn document(findings: &[Finding]) -> Value {
    let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
    json!({ "level": worst, "checks": findings })
}

#[cfg(test)]
mod tests;
