//! A loopback HTTP server for the embedded registry: whole files of one folder, nothing else.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A running server. It ends with the process.
pub(crate) struct Server {
    address: String,
}

impl Server {
    /// Serves the files of `folder` on a free port of 127.0.0.1.
    pub(crate) fn start(folder: PathBuf) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on 127.0.0.1")?;
        let address = format!("http://{}", listener.local_addr()?);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let folder = folder.clone();
                std::thread::spawn(move || {
                    // A client that hangs up takes only its own answer with it.
                    let _ = answer(&folder, connection);
                });
            }
        });
        Ok(Self { address })
    }

    /// The URL of a file.
    pub(crate) fn url(&self, file: &str) -> String {
        format!("{}/{file}", self.address)
    }
}

fn answer(folder: &Path, mut connection: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header == "\r\n" {
            break;
        }
    }
    let name = request.strip_prefix("GET /").and_then(|rest| rest.split(' ').next());
    // Plain names only, so that no path leaves the folder.
    let plain =
        |name: &&str| !name.starts_with('.') && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    match name.filter(plain).map(|name| std::fs::read(folder.join(name))) {
        Some(Ok(body)) => {
            let length = body.len();
            write!(connection, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
            connection.write_all(&body)
        }
        _ => write!(connection, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
    }
}
