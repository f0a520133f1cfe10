//! Which layers of a model an entry is for, by where they stand.

use std::fmt;
use std::str::FromStr;

/// A pattern of layer paths: `model.layers.*.mlp`, or one path, `model.layers.3.mlp`.
///
/// A star stands for any text within one component, never across a dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathPattern {
    text: String,
}

/// A text that is no pattern of paths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no pattern of layer paths such as \"model.layers.*.mlp\"")]
pub struct PathPatternError {
    /// The text as given.
    pub text: String,
}

impl PathPattern {
    /// Whether a key of a configuration is a pattern. Layer names have neither dots nor stars.
    #[must_use]
    pub fn is_one(key: &str) -> bool {
        key.contains(['.', '*'])
    }

    /// The pattern as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the layer at `path` is one of those.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let (mut pattern, mut path) = (self.text.split('.'), path.split('.'));
        loop {
            match (pattern.next(), path.next()) {
                (None, None) => return true,
                (Some(pattern), Some(component)) if component_matches(pattern, component) => {}
                _ => return false,
            }
        }
    }

    /// How closely it describes a path: of two that match, the closer one decides. Components without a star count
    /// first, then letters.
    #[must_use]
    pub fn closeness(&self) -> (usize, usize) {
        let plain = self.text.split('.').filter(|component| !component.contains('*')).count();
        (plain, self.text.bytes().filter(|byte| *byte != b'*').count())
    }

    /// The pattern of the parent and the last component.
    pub(super) fn parent_and_name(&self) -> Option<(&str, &str)> {
        self.text.rsplit_once('.')
    }
}

/// Whether a component fits one with stars in it: its pieces stand in the component in order, the first at the start
/// and the last at the end.
fn component_matches(pattern: &str, component: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == component };
    let Some(mut component) = component.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        match component.find(piece) {
            Some(at) => component = &component[at + piece.len()..],
            None => return false,
        }
    }
    component.ends_with(last)
}

impl FromStr for PathPattern {
    type Err = PathPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = |component: &str| {
            !component.is_empty()
                && !component.contains("**")
                && component.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '*'))
        };
        if text.split('.').all(plain) {
            Ok(Self { text: text.to_owned() })
        } else {
            Err(PathPatternError { text: text.to_owned() })
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::PathPattern;

    fn matches(pattern: &str, path: &str) -> bool {
        pattern.parse::<PathPattern>().unwrap().matches(path)
    }

    #[test]
    fn a_star_stays_within_its_component() {
        assert!(matches("model.layers.*.mlp", "model.layers.11.mlp"));
        assert!(matches("*.norm", "model.norm") && matches("model.layers.1*.mlp", "model.layers.1.mlp"));
        assert!(matches("a.*_norm", "a.q_norm") && matches("a.*_*m", "a.q_norm") && matches("a.x*y*z", "a.xyz"));
        for path in ["model.layers.mlp", "model.layers.1.2.mlp", "model.layers.1.mlp.x", "layers.1.mlp", ""] {
            assert!(!matches("model.layers.*.mlp", path), "{path}");
        }
        assert!(!matches("a.x*y*z", "a.xz") && !matches("a.ab*b", "a.ab") && !matches("a.*b*b", "a.b"));
    }

    #[test]
    fn the_closer_of_two_patterns_is_told() {
        let closeness = |text: &str| text.parse::<PathPattern>().unwrap().closeness();
        assert!(closeness("model.layers.3.mlp") > closeness("model.layers.*.mlp"));
        assert!(closeness("model.layers.*.mlp") > closeness("model.*.*.mlp"));
        assert!(closeness("model.layers.1*.mlp") > closeness("model.layers.*.mlp"));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in ["", ".", "a.", ".a", "a..b", "a.**.b", "a b.c", "a/b.c"] {
            assert!(text.parse::<PathPattern>().is_err(), "{text:?}");
        }
    }
}
