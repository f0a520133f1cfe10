//! A Hub that lies one way at a time: the right files or a typed error, in time, and a cache that holds nothing wrong.

use std::time::{Duration, Instant};

use kernelhub::fetch::FetchError;
use kernelhub::hub::{HubError, Prefetched, check_cache};
use serde_json::Value;

use super::{REPO, bring, one};
use crate::support::hub::{FakeHub, builder, json_reply};
use crate::support::packs::{VARIANT, library};
use crate::support::server::{Reply, Request};

/// Brings the kernel from a Hub that lies. Checks that the cache holds nothing wrong, that it ends in time, and that an
/// honest Hub then fills the same cache.
fn told(lie: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static) -> Result<Prefetched, FetchError> {
    let (fake, _) = one();
    fake.lie(lie);
    let home = tempfile::tempdir().unwrap();
    let hub = builder(&fake.endpoint(), home.path()).build().unwrap();
    let clock = Instant::now();
    let result = bring(&hub, "v1");
    assert!(clock.elapsed() < Duration::from_secs(10), "it took {:?}", clock.elapsed());
    for checked in check_cache(hub.cache()).unwrap() {
        assert!(checked.fault.is_none(), "{:?} after {result:?}", checked.fault);
    }
    if let Ok(brought) = &result {
        assert_eq!(brought.snapshot.files(), 5);
    }
    fake.honest_again();
    let again = bring(&hub, "v1").unwrap();
    assert_eq!(again.snapshot.files(), 5, "after {result:?}");
    result.map_err(|error| match error {
        HubError::Fetch(error) => error,
        other => panic!("not an error of fetching: {other:?}"),
    })
}

/// Changes the replies for one part of the protocol.
fn of(part: &'static str, lie: fn(Reply) -> Reply) -> impl Fn(&Request, Reply) -> Reply + Send + Sync {
    move |request, reply| if request.path.contains(part) { lie(reply) } else { reply }
}

fn edit(reply: &Reply, change: impl FnOnce(&mut Value)) -> Reply {
    let mut value: Value = serde_json::from_slice(&reply.body).unwrap();
    change(&mut value);
    json_reply(&value)
}

#[test]
fn lengths_are_hints() {
    // A listing that knows no sizes, or wrong ones; a header that does.
    for size in [0_u64, 1, 817, 1 << 40] {
        let lie = move |request: &Request, reply: Reply| {
            if !request.path.contains("/tree/") || request.path.contains("recursive=false") {
                return reply;
            }
            edit(&reply, |value| {
                for entry in value.as_array_mut().unwrap() {
                    entry["size"] = size.into();
                }
            })
        };
        // One that promises more than there is cannot be told from a server that sends too little.
        match told(lie) {
            Ok(_) => {}
            Err(error) => panic!("{size}: {error:?}"),
        }
    }
    told(of("/cdn/", |reply| Reply { declared: None, ..reply })).unwrap();
    told(of("librmsnorm.so", |mut reply| {
        reply.headers.retain(|(name, _)| name != "X-Linked-Size");
        reply.headers.push(("X-Linked-Size".to_owned(), "7".to_owned()));
        reply
    }))
    .unwrap();
    // A body of no bytes, again and again.
    let error = told(of("/cdn/", |_| Reply::ok(""))).unwrap_err();
    assert!(matches!(error, FetchError::TooShort { .. }), "{error:?}");
}

#[test]
fn bytes_are_held_to_their_digest() {
    let flip = |mut reply: Reply| {
        let middle = reply.body.len() / 2;
        reply.body[middle] ^= 1;
        reply
    };
    for part in ["/cdn/", "metadata.json", "__init__.py"] {
        let error = told(of(part, flip)).unwrap_err();
        assert!(matches!(error, FetchError::FileDigest { .. }), "{part}: {error:?}");
    }
    let more = of("/cdn/", |reply| Reply::ok([reply.body, b"more".to_vec()].concat()));
    assert!(matches!(told(more), Err(FetchError::FileDigest { .. })));
    // A page in the file's place, with the file's status.
    let page = of("__init__.py", |_| Reply { status: 200, ..Reply::error(500) });
    assert!(matches!(told(page), Err(FetchError::FileDigest { .. } | FetchError::TooShort { .. })));
    let gzip = of("/cdn/", |mut reply| {
        reply.headers.push(("Content-Encoding".to_owned(), "gzip".to_owned()));
        reply
    });
    assert!(matches!(told(gzip), Err(FetchError::Encoding { .. })));
    // The tree and the metadata name other bytes for one file.
    let other = of("recursive=true", |reply| {
        edit(&reply, |value| {
            for entry in value.as_array_mut().unwrap() {
                if entry["lfs"].is_object() {
                    entry["lfs"]["oid"] = "ab".repeat(32).into();
                }
            }
        })
    });
    // The listing is not believed any longer: an honest server is asked again.
    assert!(matches!(told(other), Err(FetchError::Content { .. })));
}

#[test]
fn statuses_are_errors_and_some_pass() {
    for part in ["/refs", "/tree/", "metadata.json", "/cdn/"] {
        for status in [500, 502, 503, 429, 408] {
            let error = told(
                move |request: &Request, reply| {
                    if request.path.contains(part) { Reply::error(status) } else { reply }
                },
            );
            let error = error.unwrap_err();
            assert!(matches!(error, FetchError::Status { status: found, .. } if found == status), "{part}: {error:?}");
        }
        for status in [401, 403, 410, 204, 300] {
            let clock = Instant::now();
            let error = told(
                move |request: &Request, reply| {
                    if request.path.contains(part) { Reply::error(status) } else { reply }
                },
            );
            let error = error.unwrap_err();
            assert!(matches!(error, FetchError::Status { status: found, .. } if found == status), "{part}: {error:?}");
            assert!(clock.elapsed() < Duration::from_secs(2), "{status} was tried again");
        }
    }
    // A part that was not asked for.
    let part = of("__init__.py", |reply| Reply { status: 206, ..reply });
    assert!(matches!(told(part), Err(FetchError::Status { status: 206, .. })));
}

#[test]
fn json_that_is_none_is_named_with_its_address() {
    let bodies: [fn(Reply) -> Reply; 6] = [
        |_| Reply { status: 200, ..Reply::error(500) },
        |_| Reply::ok("{"),
        |_| Reply::ok(""),
        |_| Reply::ok("[".repeat(100_000)),
        |_| Reply::ok(r#"{"branches":[],"branches":[]}"#),
        |reply| Reply::ok([b"\xff".to_vec(), reply.body].concat()),
    ];
    for part in ["/refs", "recursive=false", "recursive=true"] {
        for (index, lie) in bodies.into_iter().enumerate() {
            let error = told(of(part, lie)).unwrap_err();
            let text = error.to_string();
            assert!(
                matches!(error, FetchError::Json { .. } | FetchError::Listing { .. }) && text.contains("http://"),
                "{part} {index}: {error:?}"
            );
        }
        // JSON of another shape.
        let error = told(of(part, |_| json_reply(&serde_json::json!("text")))).unwrap_err();
        assert!(matches!(error, FetchError::Listing { .. }), "{part}: {error:?}");
    }
}

#[test]
fn names_in_listings_cannot_leave_their_folder() {
    for name in ["../../../evil", "/etc/passwd", "a\\..\\b", "con", "a\u{202e}b", "", "x/./y"] {
        let lie = move |request: &Request, reply: Reply| {
            if !request.path.contains("recursive=true") {
                return reply;
            }
            edit(&reply, |value| {
                value.as_array_mut().unwrap()[0]["path"] = format!("build/{VARIANT}/{name}").into();
            })
        };
        assert!(matches!(told(lie), Err(FetchError::Listing { .. })), "{name}");
    }
    for path in ["README.md", "build/other/x", "build"] {
        let lie = move |request: &Request, reply: Reply| {
            if !request.path.contains("recursive=true") {
                return reply;
            }
            edit(&reply, |value| value.as_array_mut().unwrap()[0]["path"] = path.into())
        };
        assert!(matches!(told(lie), Err(FetchError::Listing { .. })), "{path}");
    }
    // Twice, at least where case is ignored.
    let twice = of("recursive=true", |reply| {
        edit(&reply, |value| {
            let mut entry = value[0].clone();
            entry["path"] = entry["path"].as_str().unwrap().replace("__init__", "__INIT__").into();
            value.as_array_mut().unwrap().push(entry);
        })
    });
    assert!(matches!(told(twice), Err(FetchError::Listing { .. })));
    // Builds with wild names are shown, not used.
    told(of("recursive=false", |reply| {
        edit(&reply, |value| {
            let wild = ["../..", "build/../../x", "build/", "build/a\nb", "build/wgsl-", &"build/x".repeat(9999)];
            for path in wild {
                value.as_array_mut().unwrap().push(serde_json::json!({"type": "directory", "path": path}));
            }
        })
    }))
    .unwrap();
}

#[test]
fn pages_are_followed_on_the_same_server_and_end() {
    let (fake, _) = one();
    let endpoint = fake.endpoint();
    let link = |reply: Reply, target: String| {
        let mut reply = reply;
        reply.headers.push(("Link".to_owned(), format!("<{target}>; rel=\"next\"")));
        reply
    };
    // Three pages of an honest listing.
    let base = endpoint.clone();
    fake.lie(move |request, reply| {
        if !request.path.contains("recursive=true") {
            return reply;
        }
        let entries: Vec<Value> = serde_json::from_slice(&reply.body).unwrap();
        let page: usize =
            request.path.split("cursor=").nth(1).map_or(0, |rest| rest.split('&').next().unwrap().parse().unwrap());
        let reply = json_reply(&entries.chunks(2).nth(page).unwrap_or_default().to_vec().into());
        let plain = request.path.split("&cursor").next().unwrap();
        if page < 2 { link(reply, format!("{base}{plain}&cursor={}", page + 1)) } else { reply }
    });
    let home = tempfile::tempdir().unwrap();
    let hub = builder(&endpoint, home.path()).build().unwrap();
    assert_eq!(bring(&hub, "v1").unwrap().snapshot.files(), 5);
    assert_eq!(fake.count(&format!("build/{VARIANT}")) - fake.count("/resolve/"), 3);

    for target in ["http://127.0.0.1:1/more", "https://example.org/", "ftp://x/", "http://[::1"] {
        let lie = move |request: &Request, reply| {
            if request.path.contains("/tree/") { link(reply, target.to_owned()) } else { reply }
        };
        assert!(matches!(told(lie), Err(FetchError::Paging { .. })), "{target}");
    }
    let circle = move |request: &Request, reply| {
        if request.path.contains("/tree/") { link(reply, request.path.clone()) } else { reply }
    };
    assert!(matches!(told(circle), Err(FetchError::Paging { .. })));
    let endless = move |request: &Request, reply| {
        let plain = request.path.split("&n=").next().unwrap().to_owned();
        let n: u32 = request.path.split("&n=").nth(1).map_or(0, |n| n.parse().unwrap());
        if request.path.contains("/tree/") { link(reply, format!("{plain}&n={}", n + 1)) } else { reply }
    };
    assert!(matches!(told(endless), Err(FetchError::Paging { .. } | FetchError::Listing { .. })));
}

#[test]
fn redirects_lead_to_the_file_or_to_an_error() {
    for target in ["/cdn/loop", "file:///etc/passwd", "ftp://127.0.0.1/x", "http://[::1", "data:,x"] {
        let error = told(move |request: &Request, reply| {
            let is_file = request.path.contains("librmsnorm.so") || request.path.contains("/cdn/loop");
            if is_file { Reply::redirect(target) } else { reply }
        });
        assert!(matches!(error, Err(FetchError::Redirect { .. })), "{target}: {error:?}");
    }
    let nowhere = of("librmsnorm.so", |reply| Reply { headers: Vec::new(), ..reply });
    assert!(matches!(told(nowhere), Err(FetchError::Redirect { .. })));
    let dead = of("librmsnorm.so", |_| Reply::redirect("http://127.0.0.1:1/gone"));
    assert!(matches!(told(dead), Err(FetchError::Transport { .. })));
    // A length that belongs to the redirect's own body.
    told(of("librmsnorm.so", |reply| Reply { declared: Some(reply.body.len()), ..reply })).unwrap();
}

#[test]
fn silence_and_drops_end_in_time() {
    let silent = of("/refs", |reply| Reply { pause: Duration::from_secs(4), ..reply });
    assert!(matches!(told(silent), Err(FetchError::TimedOut { .. })));
    let stalls = of("/cdn/", |reply| Reply { pause: Duration::from_secs(4), ..reply });
    let error = told(stalls);
    assert!(error.is_ok() || matches!(error, Err(FetchError::TimedOut { .. })), "{error:?}");
    let slow = of("/refs", |reply| Reply { pace: Some((1, Duration::from_millis(100))), ..reply });
    let error = told(slow);
    assert!(matches!(error, Err(FetchError::TimedOut { .. })), "{error:?}");
}

#[test]
fn a_dead_server_is_given_up_within_30_seconds_by_default() {
    let home = tempfile::tempdir().unwrap();
    let environment = crate::support::hub::environment("http://127.0.0.1:1", home.path(), &[]);
    let hub = kernelhub::hub::Hub::builder().environment(environment).build().unwrap();
    let clock = Instant::now();
    let error = bring(&hub, "v1").unwrap_err();
    assert!(matches!(error, HubError::Fetch(FetchError::Transport { .. })), "{error:?}");
    assert!(error.to_string().contains("127.0.0.1:1") && error.to_string().contains(REPO), "{error}");
    assert!(clock.elapsed() < Duration::from_secs(30), "{:?}", clock.elapsed());
}

#[test]
fn f10_a_server_that_asks_to_wait_is_waited_for_once() {
    let fake = FakeHub::start(vec![crate::support::hub::Published::new(REPO, 1)]);
    let asked = std::sync::atomic::AtomicU32::new(0);
    fake.lie(move |request, reply| {
        if request.path.contains("/refs") && asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 {
            return Reply { headers: vec![("Retry-After".to_owned(), "2".to_owned())], ..Reply::error(429) };
        }
        reply
    });
    let home = tempfile::tempdir().unwrap();
    let clock = Instant::now();
    bring(&builder(&fake.endpoint(), home.path()).build().unwrap(), "v1").unwrap();
    assert!(clock.elapsed() >= Duration::from_secs(2));
    assert_eq!(fake.count("/refs"), 2);

    // One that asks for too much is not waited for, and the error tells.
    fake.lie(|_, _| Reply { headers: vec![("Retry-After".to_owned(), "3600".to_owned())], ..Reply::error(429) });
    let home = tempfile::tempdir().unwrap();
    let clock = Instant::now();
    let error = bring(&builder(&fake.endpoint(), home.path()).build().unwrap(), "v1").unwrap_err();
    assert!(kernelhub::hint::Hint::hint(&error).unwrap().contains("3600"), "{error:?}");
    assert!(clock.elapsed() < Duration::from_secs(2));
    assert_eq!(library().len(), 300_000);
}
