//! Who may have signed, as a Sigstore certificate says it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A condition on a certificate's claims. In a policy file each is a table with one key.
///
/// `any` and `all` without members are refused when a policy is read: an empty list would mean nobody or everybody, and
/// which of them is nothing to guess. So is a condition that some signer could meet without a named issuer and without
/// a named repository or workflow: other issuers could write the same claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// The issuer of the token that the certificate was made for, such as
    /// `https://token.actions.githubusercontent.com`.
    Issuer(String),
    /// The repository that the workflow ran for, such as `https://github.com/owner/name`.
    SourceRepository(String),
    /// The workflow that signed, with its ref, such as
    /// `https://github.com/owner/name/.github/workflows/build.yaml@refs/heads/main`.
    BuildSigner(String),
    /// At least one of these.
    Any(Vec<Identity>),
    /// Every one of these.
    All(Vec<Identity>),
}

/// What a certificate says about its owner. `None`: nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Claims {
    /// See [`Identity::Issuer`].
    pub issuer: Option<String>,
    /// See [`Identity::SourceRepository`].
    pub source_repository: Option<String>,
    /// See [`Identity::BuildSigner`].
    pub build_signer: Option<String>,
}

impl Identity {
    /// Whether the claims meet the condition. Texts are compared byte by byte; a claim that is absent meets none.
    #[must_use]
    pub fn is_met(&self, claims: &Claims) -> bool {
        let is = |claim: &Option<String>, wanted: &str| claim.as_deref() == Some(wanted);
        match self {
            Self::Issuer(wanted) => is(&claims.issuer, wanted),
            Self::SourceRepository(wanted) => is(&claims.source_repository, wanted),
            Self::BuildSigner(wanted) => is(&claims.build_signer, wanted),
            Self::Any(members) => members.iter().any(|member| member.is_met(claims)),
            // An empty list cannot come from a policy; it means nobody here.
            Self::All(members) => !members.is_empty() && members.iter().all(|member| member.is_met(claims)),
        }
    }

    /// Why this is no condition to trust by. `None`: it is one.
    pub(super) fn fault(&self) -> Option<&'static str> {
        if self.has_empty() {
            return Some("`any` and `all` need at least one member, and no text may be empty");
        }
        if !self.always(&|leaf| matches!(leaf, Self::Issuer(_))) {
            return Some("it can be met without an issuer; name one with `issuer`, beside the rest in `all`");
        }
        if !self.always(&|leaf| matches!(leaf, Self::SourceRepository(_) | Self::BuildSigner(_))) {
            return Some("it can be met by every repository of an issuer; name `source_repository` or `build_signer`");
        }
        None
    }

    fn has_empty(&self) -> bool {
        match self {
            Self::Issuer(text) | Self::SourceRepository(text) | Self::BuildSigner(text) => text.is_empty(),
            Self::Any(members) | Self::All(members) => members.is_empty() || members.iter().any(Self::has_empty),
        }
    }

    /// Whether every way to meet the condition meets a leaf of this kind.
    fn always(&self, kind: &dyn Fn(&Self) -> bool) -> bool {
        match self {
            Self::Any(members) => members.iter().all(|member| member.always(kind)),
            Self::All(members) => members.iter().any(|member| member.always(kind)),
            leaf => kind(leaf),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, word: &str, members: &[Self]| {
            let members: Vec<_> = members.iter().map(ToString::to_string).collect();
            write!(f, "{word} of ({})", members.join("; "))
        };
        match self {
            Self::Issuer(text) => write!(f, "issuer {text}"),
            Self::SourceRepository(text) => write!(f, "source repository {text}"),
            Self::BuildSigner(text) => write!(f, "build signer {text}"),
            Self::Any(members) => list(f, "any", members),
            Self::All(members) => list(f, "all", members),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Claims, Identity};

    fn leaf(value: bool) -> Identity {
        Identity::Issuer(if value { "yes" } else { "no" }.to_owned())
    }

    fn claims() -> Claims {
        Claims { issuer: Some("yes".to_owned()), ..Claims::default() }
    }

    #[test]
    fn any_and_all_have_their_truth_tables() {
        for bits in 0..8_u8 {
            let values = [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0];
            for length in 1..=3 {
                let members: Vec<_> = values[..length].iter().map(|value| leaf(*value)).collect();
                let (any, all) = (values[..length].contains(&true), !values[..length].contains(&false));
                assert_eq!(Identity::Any(members.clone()).is_met(&claims()), any, "any of {:?}", &values[..length]);
                assert_eq!(Identity::All(members).is_met(&claims()), all, "all of {:?}", &values[..length]);
            }
        }
    }

    #[test]
    fn combinators_nest_and_empty_ones_trust_nobody() {
        for (a, b, c) in [(true, true, false), (true, false, true), (false, true, true), (true, false, false)] {
            let nested = Identity::All(vec![leaf(a), Identity::Any(vec![leaf(b), leaf(c)])]);
            assert_eq!(nested.is_met(&claims()), a && (b || c));
            let nested = Identity::Any(vec![leaf(a), Identity::All(vec![leaf(b), leaf(c)])]);
            assert_eq!(nested.is_met(&claims()), a || (b && c));
        }
        for empty in [Identity::Any(Vec::new()), Identity::All(Vec::new())] {
            assert!(!empty.is_met(&claims()) && empty.fault().is_some());
            assert!(!Identity::All(vec![leaf(true), empty.clone()]).is_met(&claims()));
            assert!(Identity::All(vec![leaf(true), empty]).fault().is_some());
        }
    }

    #[test]
    fn each_leaf_compares_its_own_claim_and_an_absent_one_meets_nothing() {
        let text = || "same".to_owned();
        let leaves = [Identity::Issuer(text()), Identity::SourceRepository(text()), Identity::BuildSigner(text())];
        let mut of = [Claims::default(), Claims::default(), Claims::default()];
        of[0].issuer = Some(text());
        of[1].source_repository = Some(text());
        of[2].build_signer = Some(text());
        for (i, leaf) in leaves.iter().enumerate() {
            for (j, claims) in of.iter().enumerate() {
                assert_eq!(leaf.is_met(claims), i == j, "{leaf} by {claims:?}");
            }
            assert!(!leaf.is_met(&Claims::default()));
        }
        assert!(
            !Identity::Issuer("same".to_owned())
                .is_met(&Claims { issuer: Some("Same".to_owned()), ..Claims::default() })
        );
    }

    #[test]
    fn a_condition_names_an_issuer_and_a_source_whichever_way_it_is_met() {
        let (issuer, repo) = (Identity::Issuer("i".to_owned()), Identity::SourceRepository("r".to_owned()));
        let signer = Identity::BuildSigner("s".to_owned());
        let all = |members: &[&Identity]| Identity::All(members.iter().copied().cloned().collect());
        let any = |members: &[&Identity]| Identity::Any(members.iter().copied().cloned().collect());
        assert_eq!(all(&[&issuer, &repo]).fault(), None);
        assert_eq!(all(&[&issuer, &any(&[&repo, &signer])]).fault(), None);
        assert_eq!(any(&[&all(&[&issuer, &repo]), &all(&[&issuer, &signer])]).fault(), None);
        for weak in [issuer.clone(), repo.clone(), all(&[&repo, &signer]), any(&[&issuer, &repo])] {
            assert!(weak.fault().is_some(), "{weak}");
        }
        assert!(any(&[&all(&[&issuer, &repo]), &repo]).fault().is_some());
        assert!(all(&[&issuer, &any(&[&issuer, &repo])]).fault().is_some());
    }
}
