//! What is made of properties of a library that are no fault by themselves.

use serde::{Deserialize, Serialize};

/// What is made of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The program's own rules hold, `ScanRules` of `verify`: a policy never loosens them.
    #[default]
    Warn,
    /// The library is not loaded.
    Refuse,
}

/// What a policy adds to the rules for native libraries. Default: nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ElfRules {
    /// The library asks for an executable stack.
    pub exec_stack: Severity,
    /// The library's code is changed while it is loaded, so that it is writable then.
    pub text_relocations: Severity,
    /// The library exports GNU-unique symbols: statics that it shares with every other library that has them.
    pub gnu_unique: Severity,
}

impl ElfRules {
    /// The stricter of the two, rule by rule.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        Self {
            exec_stack: self.exec_stack.max(other.exec_stack),
            text_relocations: self.text_relocations.max(other.text_relocations),
            gnu_unique: self.gnu_unique.max(other.gnu_unique),
        }
    }
}
