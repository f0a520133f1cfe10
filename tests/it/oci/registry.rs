//! A real registry, Debian's `docker-registry`, and a proxy in front of it that can lie.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::server::{Reply, Request, Server};

/// A registry that ends with the value.
pub(super) struct Registry {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Registry {
    /// Starts one on a free loopback port. `None`, after a line that says why: the program is not installed.
    pub(super) fn start() -> Option<Self> {
        Self::with("")
    }

    /// One that wants a login: user `kernelhub`, password `secret`.
    pub(super) fn with_login() -> Option<Self> {
        Self::with("auth:\n  htpasswd:\n    realm: test\n    path: FOLDER/htpasswd\n")
    }

    #[expect(clippy::print_stdout, reason = "a test says why it skips")]
    fn with(auth: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().display().to_string();
        // Bcrypt of the password.
        let login = "kernelhub:$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n";
        std::fs::write(folder.path().join("htpasswd"), login).unwrap();
        let config = folder.path().join("config.yml");
        // Another process may take the port between its choice and its use.
        for _ in 0..5 {
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let text = format!(
                "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {root}/data\n\
                 http:\n  addr: {address}\n{}",
                auth.replace("FOLDER", &root)
            );
            std::fs::write(&config, text).unwrap();
            let mut command = Command::new("docker-registry");
            command.arg("serve").arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = match command.spawn() {
                Ok(child) => child,
                Err(error) => {
                    println!("skipped: docker-registry: {error}; scripts/setup-tests.sh installs it");
                    return None;
                }
            };
            let patience = Instant::now();
            while child.try_wait().unwrap().is_none() {
                if TcpStream::connect(address).is_ok() {
                    return Some(Self { child, address, _folder: folder });
                }
                assert!(patience.elapsed() < Duration::from_secs(30), "docker-registry does not answer on {address}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        panic!("docker-registry ends at once, five times");
    }

    /// `oci://<address>/<path>`.
    pub(super) fn reference(&self, path: &str) -> String {
        format!("oci://{}/{path}", self.address)
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Sends one request and reads the whole answer.
    pub(super) fn request(&self, method: &str, path: &str, headers: &[String], body: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let mut lines = vec![
            format!("{method} {path} HTTP/1.1"),
            format!("Host: {}", self.address),
            "Connection: close".to_owned(),
            format!("Content-Length: {}", body.len()),
        ];
        lines.extend_from_slice(headers);
        let head = lines.join("\r\n") + "\r\n\r\n";
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, ..Reply::ok(&answer[end + 4..]) };
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            assert!(!name.eq_ignore_ascii_case("transfer-encoding"), "a chunked answer is not read here");
            if !["content-length", "connection"].contains(&name.to_ascii_lowercase().as_str()) {
                reply.headers.push((name.to_owned(), value.to_owned()));
            }
        }
        reply
    }

    /// A proxy whose answers are this registry's, changed by `change`.
    pub(super) fn proxy(
        self: &std::sync::Arc<Self>,
        change: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static,
    ) -> Server {
        let registry = std::sync::Arc::clone(self);
        Server::start(move |request| {
            let kept = |header: &&String| {
                let name = header.split(':').next().unwrap_or_default().to_ascii_lowercase();
                ["accept", "authorization"].contains(&name.as_str())
            };
            let headers: Vec<String> = request.headers.iter().filter(kept).cloned().collect();
            change(request, registry.request("GET", &request.path, &headers, b""))
        })
    }
}

/// `oci://<address>/<path>` of a server.
pub(super) fn reference(server: &Server, path: &str) -> String {
    server.url(path).replace("http://", "oci://")
}
