//! What is trusted without a word in any file.

use super::Identity;

/// The publishers that are trusted on the Hub.
pub(super) const PUBLISHERS: [&str; 1] = ["kernels-community"];

const ISSUER: &str = "https://token.actions.githubusercontent.com";
const REPOSITORY: &str = "https://github.com/huggingface/kernels-community";
/// The workflows there that sign builds.
const WORKFLOWS: [&str; 4] = ["build", "build-mac", "build-windows", "sign-old-builds"];

/// Who signs what a built-in publisher publishes.
pub(super) fn identity(publisher: &str) -> Option<Identity> {
    let signer =
        |workflow| Identity::BuildSigner(format!("{REPOSITORY}/.github/workflows/{workflow}.yaml@refs/heads/main"));
    PUBLISHERS.contains(&publisher).then(|| {
        Identity::All(vec![
            Identity::Issuer(ISSUER.to_owned()),
            Identity::SourceRepository(REPOSITORY.to_owned()),
            Identity::Any(WORKFLOWS.into_iter().map(signer).collect()),
        ])
    })
}

#[cfg(test)]
mod tests {
    use super::identity;

    #[test]
    fn the_built_in_identity_obeys_the_rules_of_a_policy() {
        assert_eq!(identity("kernels-community").unwrap().fault(), None);
        assert_eq!(identity("Kernels-Community"), None);
    }
}
