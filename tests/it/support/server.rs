//! A small HTTP server on loopback, which can lie.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the server answers.
#[derive(Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The length that the header declares. `None`: none, the end of the connection is the end of the body.
    pub(crate) declared: Option<usize>,
    /// How long to wait in the middle of the body.
    pub(crate) pause: Duration,
    /// How many bytes of the body to send at a time, and how long to wait after each time.
    pub(crate) pace: Option<(usize, Duration)>,
}

impl Reply {
    /// The file.
    pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self { status: 200, headers: Vec::new(), declared: Some(body.len()), body, pause: Duration::ZERO, pace: None }
    }

    /// An error page.
    pub(crate) fn error(status: u16) -> Self {
        Self { status, ..Self::ok("<html><body>something else</body></html>") }
    }

    /// A redirect.
    pub(crate) fn redirect(to: &str) -> Self {
        Self { status: 302, headers: vec![("Location".to_owned(), to.to_owned())], ..Self::ok("") }
    }
}

/// One request as the server saw it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) headers: Vec<String>,
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

/// A server that lives as long as the test process.
pub(crate) struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(crate) fn start(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let handler: Arc<Handler> = Arc::new(handler);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, handler) = (Arc::clone(&seen), Arc::clone(&handler));
                std::thread::spawn(move || answer(&stream, &seen, &*handler));
            }
        });
        Self { address, requests }
    }

    /// Serves the files of a folder.
    pub(crate) fn folder(folder: &std::path::Path) -> Self {
        let folder = folder.to_path_buf();
        Self::start(move |request| {
            std::fs::read(folder.join(request.path.trim_start_matches('/')))
                .map_or_else(|_| Reply::error(404), Reply::ok)
        })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn answer(stream: &TcpStream, seen: &Mutex<Vec<Request>>, handler: &Handler) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let is_head = first.starts_with("HEAD ");
    let request = Request { path, headers };
    seen.lock().unwrap().push(request.clone());
    let reply = handler(&request);
    let mut lines = vec![format!("HTTP/1.1 {} X", reply.status), "Connection: close".to_owned()];
    lines.extend(reply.headers.iter().map(|(name, value)| format!("{name}: {value}")));
    lines.extend(reply.declared.map(|length| format!("Content-Length: {length}")));
    let head = lines.join("\r\n") + "\r\n\r\n";
    let body = if is_head { &[][..] } else { &reply.body };
    let (first, second) = body.split_at(body.len() / 2);
    let mut stream = stream;
    if let Some((bytes, wait)) = reply.pace {
        let mut sent = stream.write_all(head.as_bytes());
        for piece in reply.body.chunks(bytes) {
            sent = sent.and_then(|()| stream.write_all(piece)).and_then(|()| stream.flush());
            if sent.is_err() {
                return;
            }
            std::thread::sleep(wait);
        }
        return;
    }
    // The client may have had enough; what it makes of that is the test's matter.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(first)).and_then(|()| stream.flush());
    std::thread::sleep(reply.pause);
    let _ = stream.write_all(second).and_then(|()| stream.flush());
}
