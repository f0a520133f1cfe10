//! Signing keys, in minisign's form.

use std::fmt;
use std::fs;
use std::io::{self, Cursor, Write as _};
use std::path::{Path, PathBuf};

use minisign::{KeyPair, PublicKey as Public, SecretKey, SecretKeyBox};

use super::PackError;
use super::collect::io_error;
use crate::policy::{PublicKey, SIGNED_COMMENT};
use crate::regular;

/// A secret key, ready to sign.
pub struct SigningKey {
    secret: SecretKey,
    public: PublicKey,
    path: PathBuf,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public.id())
    }
}

/// Largest secret key that is read, in bytes.
const MAX_KEY_BYTES: u64 = 64 << 10;

impl SigningKey {
    /// Makes a key pair: the secret key in a file that its owner alone can read, the public key beside it as
    /// `<name>.pub`. `minisign` and its relatives can use both. The secret key stands there unencrypted; for an
    /// encrypted one, make it with `minisign -G`, and read it here.
    ///
    /// # Errors
    /// [`PackError::Io`] when a file cannot be made, which a file that is there already is a reason for.
    pub fn generate(path: &Path) -> Result<Self, PackError> {
        let failed = |error: minisign::PError| PackError::Key {
            action: "make",
            path: path.to_path_buf(),
            reason: error.to_string(),
        };
        let beside = public_path(path);
        if beside == path {
            let reason = "its public key would stand in the same file".to_owned();
            return Err(PackError::Key { action: "make", path: path.to_path_buf(), reason });
        }
        // Neither half replaces a file. Looked for before either is made, so that no half stays alone.
        for file in [path, &beside] {
            if file.symlink_metadata().is_ok() {
                return Err(io_error("make", file)(io::ErrorKind::AlreadyExists.into()));
            }
        }
        let pair = KeyPair::generate_unencrypted_keypair().map_err(failed)?;
        let text = pair.sk.to_box(Some("kernelhub secret key")).map_err(failed)?.into_string();
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(io_error("make the folder", folder))?;
        }
        let mut options = fs::File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            options.mode(0o600);
        }
        let mut file = options.open(path).map_err(io_error("make", path))?;
        file.write_all(text.as_bytes()).map_err(io_error("write", path))?;
        let public = pair.pk.to_box().map_err(failed)?.into_string();
        let mut file = fs::File::create_new(&beside).map_err(io_error("make", &beside))?;
        file.write_all(public.as_bytes()).map_err(io_error("write", &beside))?;
        Self::of(pair.sk, path)
    }

    /// Reads a secret key. `password` is for an encrypted one; `None`: it is asked for on the terminal.
    ///
    /// # Errors
    /// [`PackError::Io`], [`PackError::Key`] for a file that is no key, and for a wrong password.
    pub fn read(path: &Path, password: Option<String>) -> Result<Self, PackError> {
        let failed = |reason: String| PackError::Key { action: "read", path: path.to_path_buf(), reason };
        let text = regular::read_text(path, MAX_KEY_BYTES).map_err(io_error("read", path))?;
        let boxed = || SecretKeyBox::from_string(&text).map_err(|error| failed(error.to_string()));
        let secret = match boxed()?.into_unencrypted_secret_key() {
            Ok(secret) => secret,
            Err(_) => boxed()?.into_secret_key(password).map_err(|error| failed(error.to_string()))?,
        };
        Self::of(secret, path)
    }

    fn of(secret: SecretKey, path: &Path) -> Result<Self, PackError> {
        let failed = |reason: String| PackError::Key { action: "read", path: path.to_path_buf(), reason };
        let public = Public::from_secret_key(&secret).map_err(|error| failed(error.to_string()))?;
        let public = public.to_base64().parse().map_err(failed)?;
        Ok(Self { secret, public, path: path.to_path_buf() })
    }

    /// The public key, which a policy names.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Whether a signature is one by this key over these bytes, for this kernel.
    pub(super) fn has_signed(&self, bytes: &[u8], kernel: &str, signature: &str) -> bool {
        self.public.check(bytes, signature).is_ok_and(|comment| comment == format!("{SIGNED_COMMENT} {kernel}"))
    }

    /// The text of a signature over these bytes. `kernel`, such as `owner/name@v1 <variant>`, is signed with them.
    ///
    /// # Errors
    /// [`PackError::Sign`], and [`PackError::Key`] for a key that does not hold together.
    pub fn sign(&self, bytes: &[u8], kernel: Option<&str>) -> Result<String, PackError> {
        let trusted = kernel.map_or_else(|| SIGNED_COMMENT.to_owned(), |kernel| format!("{SIGNED_COMMENT} {kernel}"));
        let signature = minisign::sign(None, &self.secret, Cursor::new(bytes), Some(&trusted), Some("kernelhub"))
            .map_err(|error| PackError::Sign { reason: error.to_string() })?
            .into_string();
        // What is handed out is what the other side takes.
        self.public.check(bytes, &signature).map_err(|error| PackError::Key {
            action: "use",
            path: self.path.clone(),
            reason: error.to_string(),
        })?;
        Ok(signature)
    }
}

/// Where the public key of a secret key stands: `<name>.pub` for `<name>.key`.
fn public_path(secret: &Path) -> PathBuf {
    secret.with_extension("pub")
}
