//! How a build is verified.

use super::elf::ScanRules;

/// Settings of [`super::verify_with`]. The defaults are those of [`super::verify`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// What the scan of libraries refuses and warns of.
    pub rules: ScanRules,
}

impl VerifyOptions {
    /// With these rules for libraries.
    #[must_use]
    pub fn rules(mut self, rules: ScanRules) -> Self {
        self.rules = rules;
        self
    }
}
