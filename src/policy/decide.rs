//! The policies put together, and what they say about a kernel.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::Url;

use super::file::{RootFile, Terms, Text};
use super::{
    Admission, Basis, ElfRules, Identity, Level, Origin, OriginKind, PolicyError, PolicyFile, PolicyFiles, Word,
};
use super::{DEFAULT_ENDPOINT, PROJECT_FILE, SignatureMode, SignatureRule, SigstoreRoot, builtin, files};
use crate::names::RepoId;

/// Who is trusted for what, from every policy that was read.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    files: Vec<PolicyFile>,
    user: Option<PathBuf>,
    /// The strictest mode that machine, user and program name. `None`: none of them does.
    signature: Option<SignatureMode>,
    /// The strictest mode that a project names.
    project_signature: Option<SignatureMode>,
    root: Option<Arc<SigstoreRoot>>,
    elf: ElfRules,
    endpoints: Vec<Endpoint>,
    /// Each with the policy that names it.
    folders: Vec<(PathBuf, PathBuf)>,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Endpoint {
    key: String,
    accept_flags: bool,
}

/// What one policy says about a publisher or a repo.
#[derive(Debug, Clone)]
struct Entry {
    subject: Subject,
    terms: Terms,
    path: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    Publisher(String),
    Repo(RepoId),
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Publisher(name) => write!(f, "publisher {name}"),
            Self::Repo(name) => write!(f, "repo {name}"),
        }
    }
}

impl Subject {
    /// Names are compared byte by byte: a publisher in other letters is another one.
    fn is_of(&self, repo: &RepoId) -> bool {
        match self {
            Self::Publisher(name) => name == repo.owner(),
            Self::Repo(name) => name == repo,
        }
    }
}

/// What a policy says about a kernel.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each kernel, taken apart at once")]
pub enum Decision {
    /// It may be taken.
    Admitted(Admission),
    /// It depends on what the Hub says about the publisher.
    AskEndpoint(Pending),
}

/// A decision that waits for the Hub's word about the publisher.
#[derive(Debug)]
pub struct Pending {
    endpoint: String,
    /// The outcome where the Hub calls the publisher trusted.
    admission: Admission,
    /// The outcome where it doesn't.
    otherwise: Result<Admission, PolicyError>,
}

impl Pending {
    /// The decision, by the Hub's answer.
    ///
    /// # Errors
    /// [`PolicyError::Untrusted`] unless it calls the publisher trusted, or the publisher's signature would do.
    pub fn answer(self, word: Word) -> Result<Admission, PolicyError> {
        if word == Word::Trusted {
            let basis = Basis::Endpoint { endpoint: self.endpoint };
            return Ok(Admission { basis, ..self.admission });
        }
        self.otherwise.map_err(|error| match error {
            PolicyError::Untrusted { repo, origin, is_believed, files, user, .. } => {
                PolicyError::Untrusted { repo, origin, word: Some(word), is_believed, files, user }
            }
            other => other,
        })
    }
}

impl Policy {
    /// What is trusted without a word in any file.
    #[must_use]
    pub fn builtin() -> Self {
        Self::default()
    }

    /// The built-in policy and these files. One that is not there does not count.
    ///
    /// # Errors
    /// [`PolicyError`] for a file that cannot be read or is outside its format: nothing goes on by half a policy.
    pub fn read(files: &PolicyFiles) -> Result<Self, PolicyError> {
        let mut policy = Self { user: files.user.clone(), ..Self::default() };
        for (level, path, is_named) in files.each() {
            match files::read(path)? {
                Some(text) => policy.add(&text, level, path)?,
                None if is_named => return Err(PolicyError::Absent { path: path.to_path_buf() }),
                None => policy.files.push(PolicyFile { level, path: path.to_path_buf(), is_there: false }),
            }
        }
        Ok(policy)
    }

    /// Adds a policy's text, as from a program. `path` says where it came from, in errors and reports.
    ///
    /// # Errors
    /// [`PolicyError`] for a text outside its format, or one of a project that would trust somebody.
    pub fn add(&mut self, text: &str, level: Level, path: &Path) -> Result<(), PolicyError> {
        let text = Text::parse(text, level, path)?;
        let mode = if level == Level::Project { &mut self.project_signature } else { &mut self.signature };
        *mode = (*mode).max(text.signature);
        // The machine's root holds against the user's, and the first of a level against a later one.
        if self.root.is_none() {
            let folder = path.parent().unwrap_or(Path::new(""));
            let root = |root: RootFile| Arc::new(SigstoreRoot { path: folder.join(root.path), sha256: root.sha256 });
            self.root = text.sigstore_root.map(root);
        }
        let elf = text.elf;
        self.elf = self.elf.stricter(ElfRules {
            exec_stack: elf.exec_stack.unwrap_or_default(),
            text_relocations: elf.text_relocations.unwrap_or_default(),
            gnu_unique: elf.gnu_unique.unwrap_or_default(),
        });
        self.endpoints.extend(text.endpoint.into_iter().filter_map(|endpoint| {
            let accept_flags = endpoint.accept_publisher_flags;
            endpoint_key(&endpoint.url).map(|key| Endpoint { key, accept_flags })
        }));
        self.folders.extend(text.folder.into_iter().map(|folder| (folder.path, path.to_path_buf())));
        let entry = |subject, terms| Entry { subject, terms, path: path.to_path_buf() };
        let publishers = text.publisher.into_iter().map(|p| (Subject::Publisher(p.name.clone()), p.terms()));
        let repos = text.repo.into_iter().map(|r| (Subject::Repo(r.name.clone()), r.terms()));
        self.entries.extend(publishers.chain(repos).map(|(subject, terms)| entry(subject, terms)));
        self.files.push(PolicyFile { level, path: path.to_path_buf(), is_there: true });
        Ok(())
    }

    /// Adds the policy of the project in a folder, if it has one.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn add_project(&mut self, folder: &Path) -> Result<(), PolicyError> {
        let path = folder.join(PROJECT_FILE);
        if let Some(text) = files::read(&path)? {
            return self.add(&text, Level::Project, &path);
        }
        self.files.push(PolicyFile { level: Level::Project, path, is_there: false });
        Ok(())
    }

    /// The policies that were looked for, in order.
    #[must_use]
    pub fn files(&self) -> &[PolicyFile] {
        &self.files
    }

    /// How signatures are met where nothing stricter is said about a publisher.
    #[must_use]
    pub fn signature_mode(&self) -> SignatureMode {
        self.signature.unwrap_or_default().max(self.project_signature.unwrap_or(SignatureMode::Off))
    }

    /// The rules for native libraries.
    #[must_use]
    pub fn elf(&self) -> &ElfRules {
        &self.elf
    }

    /// Every statement of the files, a line each, for people.
    #[must_use]
    pub fn statements(&self) -> Vec<String> {
        let endpoints = self.endpoints.iter().map(|endpoint| {
            let flags = if endpoint.accept_flags { "names and flags count" } else { "names count" };
            format!("endpoint {}: {flags}", endpoint.key)
        });
        let entries = self.entries.iter().map(|entry| {
            let Terms { trust, from, signature, keys, identity } = &entry.terms;
            let mut words = Vec::new();
            if let Some(trust) = trust {
                let from = from.as_deref().unwrap_or(&[OriginKind::Hub]);
                let from = from.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                words.push(if *trust { format!("trusted from {from}") } else { "refused".to_owned() });
            }
            words.extend(signature.map(|mode| format!("signature {mode}")));
            words.extend(keys.iter().map(|key| format!("key {}", key.id())));
            words.extend(identity.iter().map(|identity| format!("signed by {identity}")));
            format!("{}: {} ({})", entry.subject, words.join("; "), entry.path.display())
        });
        let folders = self
            .folders
            .iter()
            .map(|(folder, path)| format!("folder {}: trusted under any name ({})", folder.display(), path.display()));
        endpoints.chain(folders).chain(entries).collect()
    }

    /// Decides whether a kernel may be taken from a place. Makes no request.
    ///
    /// # Errors
    /// [`PolicyError::Refused`], [`PolicyError::Untrusted`], [`PolicyError::NoSigner`].
    pub fn decide(&self, repo: &RepoId, origin: &Origin) -> Result<Decision, PolicyError> {
        let entries: Vec<&Entry> = self.entries.iter().filter(|entry| entry.subject.is_of(repo)).collect();
        if let Some(entry) = entries.iter().find(|entry| entry.terms.trust == Some(false)) {
            let what = entry.subject.to_string();
            return Err(PolicyError::Refused { repo: repo.clone(), what, path: entry.path.clone() });
        }
        let rule = self.signature_rule(repo, &entries);
        let has_signer = !rule.identities.is_empty() || !rule.keys.is_empty();
        if rule.mode == SignatureMode::Require && !has_signer {
            return Err(PolicyError::NoSigner { repo: repo.clone(), files: self.files.clone() });
        }
        let admission = |basis: Basis| Admission {
            repo: repo.clone(),
            origin: origin.clone(),
            basis,
            signature: rule.clone(),
            elf: self.elf,
        };
        let is_believed = match origin {
            Origin::Hub { endpoint } => self.believes(endpoint),
            Origin::Archive | Origin::Local { .. } => true,
        };
        let holds = |entry: &&&Entry| {
            let from = entry.terms.from.as_deref().unwrap_or(&[OriginKind::Hub]);
            entry.terms.trust == Some(true) && from.contains(&origin.kind())
        };
        if let Some(entry) = entries.iter().find(holds).filter(|_| is_believed) {
            return Ok(Decision::Admitted(admission(Basis::Policy { path: entry.path.clone() })));
        }
        if let Origin::Local { folder } = origin
            && let Some(path) = self.trusts_folder(folder)
        {
            return Ok(Decision::Admitted(admission(Basis::Policy { path: path.to_path_buf() })));
        }
        let is_hub = origin.kind() == OriginKind::Hub;
        if is_hub && is_believed && builtin::PUBLISHERS.contains(&repo.owner()) {
            return Ok(Decision::Admitted(admission(Basis::BuiltIn)));
        }
        let otherwise = if has_signer {
            let mut signed = admission(Basis::Signature);
            // A name that only the signature vouches for has to be signed, whatever the mode is.
            signed.signature.mode = SignatureMode::Require;
            Ok(signed)
        } else {
            Err(PolicyError::Untrusted {
                repo: repo.clone(),
                origin: Box::new(origin.clone()),
                word: None,
                is_believed,
                files: self.files.clone(),
                user: self.user.clone(),
            })
        };
        match origin {
            Origin::Hub { endpoint } if self.accepts_flags(endpoint) => Ok(Decision::AskEndpoint(Pending {
                endpoint: endpoint.as_str().trim_end_matches('/').to_owned(),
                admission: admission(Basis::Signature),
                otherwise,
            })),
            _ => otherwise.map(Decision::Admitted),
        }
    }

    /// Decides without asking anybody: a kernel whose admission depends on a Hub's word is not admitted by that.
    ///
    /// # Errors
    /// As [`Self::decide`] and [`Pending::answer`].
    pub fn admit(&self, repo: &RepoId, origin: &Origin) -> Result<Admission, PolicyError> {
        match self.decide(repo, origin)? {
            Decision::Admitted(admission) => Ok(admission),
            Decision::AskEndpoint(pending) => pending.answer(Word::NotRecorded),
        }
    }

    fn signature_rule(&self, repo: &RepoId, entries: &[&Entry]) -> SignatureRule {
        let stated = entries.iter().filter_map(|entry| entry.terms.signature);
        let identities: Vec<Identity> = entries.iter().filter_map(|entry| entry.terms.identity.clone()).collect();
        SignatureRule {
            mode: stated.fold(self.signature_mode(), Ord::max),
            identities: identities.into_iter().chain(builtin::identity(repo.owner())).collect(),
            keys: entries.iter().flat_map(|entry| entry.terms.keys.iter().cloned()).collect(),
            root: self.root.clone(),
        }
    }

    /// The policy that trusts a folder or one above it, links resolved: what is linked to from a trusted folder stands
    /// elsewhere.
    fn trusts_folder(&self, folder: &Path) -> Option<&Path> {
        if self.folders.is_empty() {
            return None;
        }
        let folder = folder.canonicalize().ok()?;
        let is_above = |trusted: &Path| trusted.canonicalize().is_ok_and(|trusted| folder.starts_with(trusted));
        self.folders.iter().find(|(trusted, _)| is_above(trusted)).map(|(_, path)| path.as_path())
    }

    /// Whether the names at an endpoint count.
    fn believes(&self, endpoint: &Url) -> bool {
        let key = endpoint_key(endpoint);
        is_default(key.as_deref()) || self.endpoints.iter().any(|known| Some(&known.key) == key.as_ref())
    }

    /// Whether a publisher is trusted because an endpoint says so. Where policies disagree, it is not.
    fn accepts_flags(&self, endpoint: &Url) -> bool {
        let key = endpoint_key(endpoint);
        let mut stated = self.endpoints.iter().filter(|known| Some(&known.key) == key.as_ref()).peekable();
        if stated.peek().is_none() {
            return is_default(key.as_deref());
        }
        stated.all(|known| known.accept_flags)
    }
}

fn is_default(key: Option<&str>) -> bool {
    key == Some(DEFAULT_ENDPOINT)
}

/// An endpoint as it is compared: scheme, host, port and path in the URL standard's form, without a slash at the end.
/// `None`: it is no endpoint.
pub(super) fn endpoint_key(url: &Url) -> Option<String> {
    let plain =
        url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
    let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
    (plain && is_http).then(|| url.as_str().trim_end_matches('/').to_owned())
}
