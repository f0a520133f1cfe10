//! F14: where a token goes.

use kernelhub::hub::Hub;

use super::{REPO, bring};
use crate::support::hub::{FakeHub, Published, environment, fast};
use crate::support::server::Request;
use crate::support::trust;

const SECRET: &str = "hf_hunter2";

fn has_token(request: &Request) -> bool {
    request.headers.iter().any(|line| line.contains(SECRET))
}

#[test]
fn f14_a_token_stays_with_its_origin_and_out_of_every_text() {
    let published = Published::new(REPO, 1);
    let cdn = FakeHub::start(vec![published.clone()]);
    let fake = FakeHub::start_as("kernels", vec![published], Some(cdn.endpoint()));
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("token"), format!("{SECRET}\n")).unwrap();
    let environment = environment(&fake.endpoint(), home.path(), &[]);
    let hub = Hub::builder().environment(environment.clone()).fetch_options(fast()).build().unwrap();
    bring(&hub, "v1").unwrap();
    assert!(fake.server.requests().iter().all(has_token), "the endpoint was asked without the token");
    assert_eq!(cdn.server.requests().len(), 1);
    assert!(!cdn.server.requests().iter().any(has_token), "the token followed a redirect to another port");
    let texts = format!("{hub:?} {environment:?} {:?}", hub.hub());
    assert!(!texts.contains(SECRET), "{texts}");

    // Another endpoint named by the program does not get the environment's token.
    let home = tempfile::tempdir().unwrap();
    let other = FakeHub::start(vec![Published::new(REPO, 1)]);
    let hub = Hub::builder()
        .environment(environment)
        .policy(trust::policy_of(&trust::text(&other.endpoint())))
        .cache(home.path())
        .fetch_options(fast())
        .endpoint(other.endpoint().parse().unwrap(), None)
        .build()
        .unwrap();
    bring(&hub, "v1").unwrap();
    assert!(!other.server.requests().iter().any(has_token));
}
