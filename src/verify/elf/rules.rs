//! What is refused and what is warned of.

use serde::{Deserialize, Serialize};

use crate::policy::ElfRules;

/// What happens where the scan finds something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Nothing.
    Allow,
    /// The report says so, and the library is loaded.
    Warn,
    /// The library is not loaded.
    Refuse,
}

/// How strict the scan is. What no linker would load is refused whatever stands here: a file that is no library, or is
/// one for another processor. Later versions may have more rules: write `..ScanRules::default()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ScanRules {
    /// A stack whose bytes can be executed: it takes one defence from the whole process. Default: refuse.
    pub executable_stack: Severity,
    /// Code that is written to while it is loaded. Default: refuse.
    pub text_relocations: Severity,
    /// A segment that stays both writable and executable. Default: refuse.
    pub writable_code: Severity,
    /// Symbols that the whole process shares (`STB_GNU_UNIQUE`): what one kernel writes into such a variable, another
    /// one reads. C++ compilers make them for static variables in inline functions and templates. Default: warn.
    pub unique_symbols: Severity,
    /// Such symbols that another kernel in this process has already. Default: warn.
    pub shared_symbols: Severity,
    /// Places in the library's own search list from which any file might be loaded: relative ones, and the working
    /// directory. Default: refuse.
    pub search_paths: Severity,
    /// Libraries of the system that were found by a folder that the library itself names. Default: warn.
    pub own_folders: Severity,
    /// Needed libraries that this machine does not have. Where the linker's rules are not known, as with musl, it is a
    /// warning at most. Default: refuse.
    pub missing_libraries: Severity,
    /// Symbol versions that this machine's libraries do not have. Default: refuse.
    pub missing_versions: Severity,
    /// What a linker allows and no kernel has a use for: filters, pre-initialisers, static thread storage.
    /// Default: warn; a filter, which loads another library in this one's place, is refused at the least of this and
    /// [`Self::search_paths`].
    pub oddities: Severity,
}

impl Default for ScanRules {
    fn default() -> Self {
        Self {
            executable_stack: Severity::Refuse,
            text_relocations: Severity::Refuse,
            writable_code: Severity::Refuse,
            unique_symbols: Severity::Warn,
            shared_symbols: Severity::Warn,
            search_paths: Severity::Refuse,
            own_folders: Severity::Warn,
            missing_libraries: Severity::Refuse,
            missing_versions: Severity::Refuse,
            oddities: Severity::Warn,
        }
    }
}

impl ScanRules {
    /// These rules, and what a policy refuses beside them.
    #[must_use]
    pub fn with_policy(self, policy: &ElfRules) -> Self {
        let refused = |rule: crate::policy::Severity, own| match rule {
            crate::policy::Severity::Refuse => Severity::Refuse,
            crate::policy::Severity::Warn => own,
        };
        Self {
            executable_stack: refused(policy.exec_stack, self.executable_stack),
            text_relocations: refused(policy.text_relocations, self.text_relocations),
            unique_symbols: refused(policy.gnu_unique, self.unique_symbols),
            ..self
        }
    }

    /// The stricter of two sets, rule by rule: what a machine, a user and a project ask for adds up.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        Self {
            executable_stack: self.executable_stack.max(other.executable_stack),
            text_relocations: self.text_relocations.max(other.text_relocations),
            writable_code: self.writable_code.max(other.writable_code),
            unique_symbols: self.unique_symbols.max(other.unique_symbols),
            shared_symbols: self.shared_symbols.max(other.shared_symbols),
            search_paths: self.search_paths.max(other.search_paths),
            own_folders: self.own_folders.max(other.own_folders),
            missing_libraries: self.missing_libraries.max(other.missing_libraries),
            missing_versions: self.missing_versions.max(other.missing_versions),
            oddities: self.oddities.max(other.oddities),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ScanRules, Severity};

    #[test]
    fn the_stricter_of_two_rules_wins_whichever_comes_first() {
        let default = ScanRules::default();
        let other = ScanRules { unique_symbols: Severity::Refuse, executable_stack: Severity::Allow, ..default };
        let both = ScanRules { unique_symbols: Severity::Refuse, ..default };
        assert_eq!(default.stricter(other), both);
        assert_eq!(other.stricter(default), both);
    }
}
