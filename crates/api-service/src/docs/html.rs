//! Text as HTML.

/// Escapes text and attribute values in double quotes.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// One paragraph. Text between backticks is code.
pub(super) fn inline(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts
        .map(|(nth, part)| if nth % 2 == 1 { format!("<code>{}</code>", escape(part)) } else { escape(part) })
        .collect()
}

/// Paragraphs, separated by empty lines.
pub(super) fn paragraphs(text: &str) -> String {
    text.split("\n\n").map(|paragraph| format!("<p>{}</p>\n", inline(paragraph))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_markup_but_paragraphs_and_code() {
        assert_eq!(escape(r#"<a href="x">&"#), "&lt;a href=&quot;x&quot;&gt;&amp;");
        assert_eq!(paragraphs("a `<b>` c\n\n<i>"), "<p>a <code>&lt;b&gt;</code> c</p>\n<p>&lt;i&gt;</p>\n");
    }
}
