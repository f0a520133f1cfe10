//! How a build is verified.

use super::TrustedHashes;
use super::elf::ScanRules;

/// Settings of [`super::verify_with`]. The defaults are those of [`super::verify`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// What the scan of libraries refuses and warns of.
    pub rules: ScanRules,
    /// Where hashes are recorded that are believed without hashing again. Default: nowhere, and every file is hashed at
    /// every load. See [`TrustedHashes`] for what this gives up.
    pub trusted: Option<TrustedHashes>,
}

impl VerifyOptions {
    /// With these rules for libraries.
    #[must_use]
    pub fn rules(mut self, rules: ScanRules) -> Self {
        self.rules = rules;
        self
    }

    /// With hashes recorded there that are believed.
    #[must_use]
    pub fn trusted(mut self, trusted: Option<TrustedHashes>) -> Self {
        self.trusted = trusted;
        self
    }
}
