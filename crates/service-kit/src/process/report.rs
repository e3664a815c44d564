//! An error in one line.

use std::error::Error;

/// `name: error: cause: cause`. Leaves out a cause that the text before it already contains: not every library keeps
/// its errors' sources out of their own text.
pub fn line(name: &str, error: &dyn Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !told.contains(&text) {
            told = format!("{told}: {text}");
        }
        cause = error.source();
    }
    format!("{name}: {told}")
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

    fn chain(texts: &[&'static str]) -> Option<Box<Link>> {
        let (text, rest) = texts.split_first()?;
        Some(Box::new(Link { text, source: chain(rest) }))
    }

    fn told(texts: &[&'static str]) -> String {
        line("dispatcher", &*chain(texts).unwrap())
    }

    #[test]
    fn the_whole_chain_is_told() {
        assert_eq!(told(&["cannot start", "no broker", "refused"]), "dispatcher: cannot start: no broker: refused");
    }

    #[test]
    fn a_cause_that_was_told_is_not_told_again() {
        assert_eq!(told(&["no broker: refused", "refused"]), "dispatcher: no broker: refused");
        assert_eq!(told(&["refused", "refused", "errno 111"]), "dispatcher: refused: errno 111");
    }
}
