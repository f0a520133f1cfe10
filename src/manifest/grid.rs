//! Grid expressions: how many workgroups a shader needs, from its integer parameters.
//!
//! The whole language: decimal integers, parameter names, `a + b`, `a * b`, `min(a, b)`, `max(a, b)`, `ceil(a / b)` and
//! parentheses. Division stands only inside `ceil`, and a divisor is a single operand, so that no expression can be
//! read in two ways. Evaluation is total: every value is a `u64`, and overflow or division by zero is an error.

use std::fmt;

/// Longest expression accepted, in bytes.
const MAX_BYTES: usize = 256;
/// Deepest nesting accepted.
const MAX_DEPTH: u32 = 32;

/// One parsed grid expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridExpression {
    text: String,
    root: Node,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Number(u64),
    Parameter(String),
    Binary(Operation, Box<Node>, Box<Node>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Add,
    Multiply,
    Min,
    Max,
    CeilDivide,
}

/// Why a grid expression was refused or has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GridError {
    /// The text is not in the language.
    #[error("grid expression {text:?}, byte {position}: expected {expected}")]
    Syntax {
        /// The expression.
        text: String,
        /// Offset of the fault, in bytes from 0.
        position: usize,
        /// What could have stood there.
        expected: &'static str,
    },
    /// The text is longer or nested deeper than accepted.
    #[error("grid expression of {bytes} bytes: at most 256 bytes and 32 levels of nesting are accepted")]
    TooLarge {
        /// The expression's length, in bytes.
        bytes: usize,
    },
    /// A name that is no integer parameter of the shader.
    #[error("grid expression {text:?}: {name:?} is no u32 parameter of the shader")]
    UnknownParameter {
        /// The expression.
        text: String,
        /// The name.
        name: String,
    },
    /// A value above `u64::MAX` came up.
    #[error("grid expression {text:?}: the value exceeds 64 bits")]
    Overflow {
        /// The expression.
        text: String,
    },
    /// The divisor of a `ceil` was 0.
    #[error("grid expression {text:?}: division by zero")]
    DivisionByZero {
        /// The expression.
        text: String,
    },
}

impl GridExpression {
    /// Parses an expression.
    ///
    /// # Errors
    /// [`GridError::Syntax`] with the position, or [`GridError::TooLarge`].
    pub fn parse(text: &str) -> Result<Self, GridError> {
        if text.len() > MAX_BYTES {
            return Err(GridError::TooLarge { bytes: text.len() });
        }
        let mut parser = Parser { text, position: 0, depth: 0 };
        let root = parser.sum()?;
        if parser.peek().is_some() {
            return parser.refuse("an operator or the end");
        }
        Ok(Self { text: text.to_owned(), root })
    }

    /// The names that the expression uses, in order of appearance, with repetitions.
    #[must_use]
    pub fn parameters(&self) -> Vec<&str> {
        fn collect<'a>(node: &'a Node, names: &mut Vec<&'a str>) {
            match node {
                Node::Number(_) => {}
                Node::Parameter(name) => names.push(name),
                Node::Binary(_, left, right) => {
                    collect(left, names);
                    collect(right, names);
                }
            }
        }
        let mut names = Vec::new();
        collect(&self.root, &mut names);
        names
    }

    /// The expression's value; `value_of` gives each parameter's.
    ///
    /// # Errors
    /// [`GridError::UnknownParameter`] where `value_of` knows no value, [`GridError::Overflow`],
    /// [`GridError::DivisionByZero`].
    pub fn evaluate(&self, value_of: &dyn Fn(&str) -> Option<u64>) -> Result<u64, GridError> {
        self.value(&self.root, value_of)
    }

    fn value(&self, node: &Node, value_of: &dyn Fn(&str) -> Option<u64>) -> Result<u64, GridError> {
        let text = || self.text.clone();
        match node {
            Node::Number(value) => Ok(*value),
            Node::Parameter(name) => {
                value_of(name).ok_or_else(|| GridError::UnknownParameter { text: text(), name: name.clone() })
            }
            Node::Binary(operation, left, right) => {
                let (left, right) = (self.value(left, value_of)?, self.value(right, value_of)?);
                match operation {
                    Operation::Add => left.checked_add(right).ok_or_else(|| GridError::Overflow { text: text() }),
                    Operation::Multiply => left.checked_mul(right).ok_or_else(|| GridError::Overflow { text: text() }),
                    Operation::Min => Ok(left.min(right)),
                    Operation::Max => Ok(left.max(right)),
                    Operation::CeilDivide if right == 0 => Err(GridError::DivisionByZero { text: text() }),
                    Operation::CeilDivide => Ok(left.div_ceil(right)),
                }
            }
        }
    }
}

impl fmt::Display for GridExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
    depth: u32,
}

impl Parser<'_> {
    fn refuse<T>(&self, expected: &'static str) -> Result<T, GridError> {
        Err(GridError::Syntax { text: self.text.to_owned(), position: self.position, expected })
    }

    /// The next byte after spaces, not consumed.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.position) == Some(&b' ') {
            self.position += 1;
        }
        bytes.get(self.position).copied()
    }

    fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), GridError> {
        if self.peek() == Some(byte) {
            self.position += 1;
            return Ok(());
        }
        self.refuse(expected)
    }

    fn sum(&mut self) -> Result<Node, GridError> {
        self.chain(b'+', Operation::Add, Self::product)
    }

    fn product(&mut self) -> Result<Node, GridError> {
        self.chain(b'*', Operation::Multiply, Self::operand)
    }

    fn chain(
        &mut self,
        symbol: u8,
        operation: Operation,
        part: fn(&mut Self) -> Result<Node, GridError>,
    ) -> Result<Node, GridError> {
        let mut left = part(self)?;
        while self.peek() == Some(symbol) {
            self.position += 1;
            left = Node::Binary(operation, Box::new(left), Box::new(part(self)?));
        }
        Ok(left)
    }

    fn operand(&mut self) -> Result<Node, GridError> {
        match self.peek() {
            Some(b'0'..=b'9') => self.number(),
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => {
                let name = self.run(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').to_owned();
                if self.peek() == Some(b'(') {
                    return self.call(&name);
                }
                Ok(Node::Parameter(name))
            }
            Some(b'(') => self.nested(|parser| {
                let inner = parser.sum()?;
                parser.take(b')', "')' or an operator")?;
                Ok(inner)
            }),
            _ => self.refuse("an integer, a parameter, min(a, b), max(a, b), ceil(a / b) or '('"),
        }
    }

    fn call(&mut self, name: &str) -> Result<Node, GridError> {
        let operation = match name {
            "min" => Operation::Min,
            "max" => Operation::Max,
            "ceil" => Operation::CeilDivide,
            _ => return self.refuse("one of the functions min, max and ceil before '('"),
        };
        self.nested(|parser| {
            let (left, right) = if operation == Operation::CeilDivide {
                let dividend = parser.product()?;
                parser.take(b'/', "'/' (a sum inside ceil needs parentheses)")?;
                (dividend, parser.operand()?)
            } else {
                let left = parser.sum()?;
                parser.take(b',', "',' or an operator")?;
                (left, parser.sum()?)
            };
            parser.take(b')', "')'")?;
            Ok(Node::Binary(operation, Box::new(left), Box::new(right)))
        })
    }

    /// Consumes the '(' that stands next and parses what follows it, one level deeper.
    fn nested(&mut self, parse: impl FnOnce(&mut Self) -> Result<Node, GridError>) -> Result<Node, GridError> {
        self.take(b'(', "'('")?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(GridError::TooLarge { bytes: self.text.len() });
        }
        let node = parse(self)?;
        self.depth -= 1;
        Ok(node)
    }

    fn number(&mut self) -> Result<Node, GridError> {
        let start = self.position;
        let value = self.run(u8::is_ascii_digit).parse().ok();
        let followed_by_name =
            matches!(self.text.as_bytes().get(self.position), Some(b'a'..=b'z' | b'A'..=b'Z' | b'_'));
        match value {
            Some(value) if !followed_by_name => Ok(Node::Number(value)),
            _ => {
                self.position = start;
                self.refuse("a decimal integer below 2^64")
            }
        }
    }

    /// Consumes bytes while `accepts` holds.
    fn run(&mut self, accepts: fn(&u8) -> bool) -> &str {
        let rest = &self.text[self.position..];
        let length = rest.bytes().take_while(accepts).count();
        self.position += length;
        &rest[..length]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{GridError, GridExpression};

    fn value(text: &str) -> Result<u64, GridError> {
        GridExpression::parse(text)?.evaluate(&|name| match name {
            "rows" => Some(70_000),
            "width" => Some(300),
            "zero" => Some(0),
            "huge" => Some(u64::MAX),
            _ => None,
        })
    }

    #[test]
    fn expressions_have_their_school_values() {
        for (text, expected) in [
            ("1", 1),
            ("rows", 70_000),
            ("ceil(width / 256)", 2),
            ("ceil(rows*width/256)", 82_032),
            ("ceil((rows + 1) / (width + 1))", 233),
            ("2 + 3 * 4", 14),
            ("(2 + 3) * 4", 20),
            ("min(rows, 65535)", 65_535),
            ("max(zero, 1)", 1),
            ("ceil(rows / max(ceil(rows / 65535), 1))", 35_000),
            ("  min ( 1 , 2 )  ", 1),
            ("ceil(zero / 7)", 0),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_in_the_language_is_refused_with_its_position() {
        for (text, at) in [
            ("", 0),
            ("rows +", 6),
            ("rows / 2", 5),
            ("ceil(rows)", 9),
            ("ceil(1 + 2 / 3)", 7),
            ("ceil(1 / 2 * 3)", 11),
            ("min(1)", 5),
            ("floor(1 / 2)", 5),
            ("1 2", 2),
            ("(1", 2),
            ("1)", 1),
            ("-1", 0),
            ("1.5", 1),
            ("0x10", 0),
            ("18446744073709551616", 0),
            ("rows\n", 4),
            ("ré", 1),
        ] {
            match value(text) {
                Err(GridError::Syntax { position, .. }) => assert_eq!(position, at, "{text:?}"),
                other => panic!("{text:?} gave {other:?}"),
            }
        }
    }

    #[test]
    fn evaluation_is_total() {
        assert!(matches!(value("ceil(rows / zero)"), Err(GridError::DivisionByZero { .. })));
        assert!(matches!(value("huge + 1"), Err(GridError::Overflow { .. })));
        assert!(matches!(value("huge * 2"), Err(GridError::Overflow { .. })));
        assert!(matches!(value("columns"), Err(GridError::UnknownParameter { name, .. }) if name == "columns"));
        let deep = "(".repeat(40) + "1" + &")".repeat(40);
        assert!(matches!(value(&deep), Err(GridError::TooLarge { .. })));
        assert!(matches!(value(&"1".repeat(300)), Err(GridError::TooLarge { bytes: 300 })));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,300}") {
            let _ = value(&text);
        }

        #[test]
        fn no_text_of_the_alphabet_panics(text in "(min|max|ceil|rows|zero|huge|[0-9]{1,21}|[()+*/, ]){0,60}") {
            let _ = value(&text);
        }
    }
}
