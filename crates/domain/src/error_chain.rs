//! An error with its causes, in one text.

use std::error::Error;

/// Returns `error: cause: cause`. Leaves out a cause that the text before it already contains: some libraries repeat a
/// source in their error's own text. A field of a log line holds this text: JSON shows no sources of an error, and the text
/// format escapes no value that is only displayed.
pub fn error_chain(error: &dyn Error) -> String {
    let mut chain = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !chain.contains(&text) {
            chain = format!("{chain}: {text}");
        }
        next = cause.source();
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        source: Option<Box<Link>>,
    }

    fn link(texts: &[&'static str]) -> Option<Box<Link>> {
        let (text, rest) = texts.split_first()?;
        Some(Box::new(Link { text, source: link(rest) }))
    }

    fn chain_of(texts: &[&'static str]) -> String {
        error_chain(&*link(texts).unwrap())
    }

    #[test]
    fn an_error_is_followed_by_its_causes() {
        assert_eq!(chain_of(&["cannot start", "no broker", "refused"]), "cannot start: no broker: refused");
    }

    #[test]
    fn a_cause_that_the_text_contains_is_left_out() {
        assert_eq!(chain_of(&["no broker: refused", "refused"]), "no broker: refused");
        assert_eq!(chain_of(&["refused", "refused", "errno 111"]), "refused: errno 111");
    }
}
