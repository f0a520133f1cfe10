//! Downloads that break off: F11, F12, F15.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use kernelhub::digest::Sha256Digest;
use kernelhub::fetch::FetchError;
use kernelhub::hub::HubError;

use super::{bring_into, one};
use crate::support::hub::FakeHub;
use crate::support::packs::library;
use crate::support::server::{Reply, Request};

/// Breaks the first answer with the large file after this many bytes; the later ones go through `then`.
fn broken(fake: &FakeHub, after: usize, then: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static) {
    let served = AtomicU32::new(0);
    fake.lie(move |request, mut reply| {
        if !request.path.contains("/cdn/") {
            return reply;
        }
        if served.fetch_add(1, Ordering::SeqCst) == 0 {
            reply.declared = Some(reply.body.len());
            reply.body.truncate(after);
            return reply;
        }
        then(request, reply)
    });
}

fn ranges(fake: &FakeHub) -> Vec<String> {
    let lines = fake.server.requests().into_iter().filter(|request| request.path.contains("/cdn/"));
    lines
        .filter_map(|request| {
            let range =
                request.headers.iter().find_map(|line| line.to_lowercase().strip_prefix("range:").map(str::to_owned));
            range.map(|range| range.trim().to_owned())
        })
        .collect()
}

type Lie = fn(&Request, Reply) -> Reply;

#[test]
fn a_transfer_that_breaks_off_goes_on_where_it_was() {
    let (fake, _) = one();
    broken(&fake, 120_000, |_, reply| reply);
    let home = tempfile::tempdir().unwrap();
    let brought = bring_into(&fake, home.path(), "v1").unwrap();
    assert_eq!(ranges(&fake), ["bytes=120000-"]);
    let small: u64 = brought.fetched.bytes_fetched - library().len() as u64;
    assert!(small < 3000, "bytes came twice: {}", brought.fetched.bytes_fetched);
}

#[test]
fn f11_a_range_that_is_ignored_starts_the_file_anew() {
    let (fake, _) = one();
    // 200 with the whole file, whatever was asked for.
    broken(&fake, 233, |_, _| Reply::ok(library()));
    let home = tempfile::tempdir().unwrap();
    bring_into(&fake, home.path(), "v1").unwrap();
    assert_eq!(ranges(&fake).len(), 1);
}

#[test]
fn lies_about_ranges_end_in_the_right_file_or_a_typed_error() {
    let start_elsewhere = |_: &Request, reply: Reply| {
        if reply.status == 206 {
            let headers = vec![("Content-Range".to_owned(), "bytes 5-299999/300000".to_owned())];
            return Reply { status: 206, headers, ..Reply::ok(&library()[5..]) };
        }
        reply
    };
    let says_nothing = |_: &Request, mut reply: Reply| {
        reply.headers.retain(|(name, _)| name != "Content-Range");
        reply
    };
    let other_tag = |_: &Request, mut reply: Reply| {
        if reply.status == 206 {
            reply.headers.retain(|(name, _)| name != "ETag");
            reply.headers.push(("ETag".to_owned(), "\"changed\"".to_owned()));
        }
        reply
    };
    let no_such_range = |_: &Request, reply: Reply| if reply.status == 206 { Reply::error(416) } else { reply };
    let other_bytes = |_: &Request, mut reply: Reply| {
        if reply.status == 206 {
            reply.body[0] ^= 1;
        }
        reply
    };
    let lies: [(&str, Lie); 5] = [
        ("start elsewhere", start_elsewhere),
        ("says nothing", says_nothing),
        ("other tag", other_tag),
        ("no such range", no_such_range),
        ("other bytes", other_bytes),
    ];
    for (name, lie) in lies {
        let (fake, _) = one();
        broken(&fake, 100_000, lie);
        let home = tempfile::tempdir().unwrap();
        let brought = bring_into(&fake, home.path(), "v1");
        brought.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
    // One that breaks every answer off and ignores every range makes no way.
    let (fake, _) = one();
    fake.lie(|request, reply| {
        if !request.path.contains("/cdn/") {
            return reply;
        }
        let mut whole = Reply::ok(library());
        whole.body.truncate(50_000);
        whole
    });
    let home = tempfile::tempdir().unwrap();
    let error = bring_into(&fake, home.path(), "v1").unwrap_err();
    assert!(matches!(error, HubError::Fetch(FetchError::Range { .. } | FetchError::Transport { .. })), "{error:?}");
}

#[test]
fn f15_another_process_asks_only_for_the_rest_unless_the_file_has_changed() {
    for changed in [false, true] {
        let (fake, _) = one();
        // The first process gets 40 % and gives up; what it was told the tag is stays beside the bytes.
        fake.lie(|request, mut reply| {
            if request.path.contains("/cdn/") {
                reply.body.truncate(120_000);
                if request.headers.iter().any(|line| line.to_lowercase().starts_with("range:")) {
                    return Reply::error(404);
                }
            }
            reply
        });
        let home = tempfile::tempdir().unwrap();
        bring_into(&fake, home.path(), "v1").unwrap_err();
        let partial = home
            .path()
            .join("hub/kernels--kernels-community--rmsnorm/blobs")
            .join(format!("{}.incomplete", Sha256Digest::of(&library())));
        assert_eq!(fs::metadata(&partial).unwrap().len(), 120_000);

        let before = (fake.paths().len(), ranges(&fake).len());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        fake.lie(move |request, reply| {
            let mut reply = reply;
            if request.path.contains("/cdn/") && changed {
                // The server calls the same bytes something else now, and so sends all of them.
                reply = Reply::ok(library());
                reply.headers.push(("ETag".to_owned(), "\"new\"".to_owned()));
            }
            log.lock().unwrap().push((request.path.clone(), reply.status, reply.body.len()));
            reply
        });
        let brought = bring_into(&fake, home.path(), "v1").unwrap();
        let files: Vec<_> = seen.lock().unwrap().iter().filter(|(path, ..)| path.contains("/cdn/")).cloned().collect();
        let expected = if changed { (200, 300_000) } else { (206, 180_000) };
        assert_eq!(files.iter().map(|(_, status, bytes)| (*status, *bytes)).collect::<Vec<_>>(), [expected]);
        // The request named the tag that the first process was told.
        let asked = fake.server.requests();
        let request = asked.iter().rfind(|request| request.path.contains("/cdn/")).unwrap();
        assert!(request.headers.iter().any(|line| line.to_lowercase().starts_with("if-range: \"cdn-")), "{request:?}");
        // The listings are known, and so is every file that had arrived.
        let again: Vec<_> = fake.paths().split_off(before.0);
        assert!(!again.iter().any(|path| path.contains("/tree/") || path.ends_with("metadata.json")), "{again:?}");
        assert_eq!(brought.snapshot.files(), 5);
        assert!(!partial.exists());
    }
}
