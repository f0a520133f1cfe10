//! Several threads that ask one hub.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use kernelhub::fetch::Location;
use kernelhub::hub::Hub;
use kernelhub::variant::DeviceKey::Cpu;

use crate::support::native::{KIT, NativePack, norm_layer};
use crate::support::server::{Reply, Server};
use crate::support::trust;

/// A kernel whose library has bytes of its own.
fn pack(name: &str) -> NativePack {
    let mut library = KIT.clone();
    library.extend_from_slice(name.as_bytes());
    NativePack::new(name, &norm_layer("RMSNorm", "count_rms_norm"), &[(&format!("lib{name}.so"), &library)])
}

#[test]
fn two_kernels_are_downloaded_at_the_same_time_and_one_kernel_once() {
    let packs = [pack("together"), pack("apart")];
    let folders = packs.each_ref().map(|pack| pack.folder().to_path_buf());
    // How many downloads have begun. Each archive is answered once both were asked for: one after the other, the first
    // would wait for as long as the server has patience.
    let begun = Arc::new((Mutex::new(0), Condvar::new()));
    let seen = Arc::clone(&begun);
    let server = Server::start(move |request| {
        let (count, changed) = &*seen;
        let mut count = count.lock().unwrap();
        *count += 1;
        changed.notify_all();
        let (count, waited) = changed.wait_timeout_while(count, Duration::from_secs(10), |count| *count < 2).unwrap();
        drop(count);
        if waited.timed_out() {
            return Reply::error(404);
        }
        let name = request.path.trim_start_matches('/');
        let bytes = folders.iter().find_map(|folder| std::fs::read(folder.join(name)).ok());
        bytes.map_or_else(|| Reply::error(404), Reply::ok)
    });
    let cache = tempfile::tempdir().unwrap();
    let builder = packs.iter().fold(Hub::builder().policy(trust::policy()).cache(cache.path()), |builder, pack| {
        let location: Location = server.url("manifest.toml").parse().unwrap();
        builder.manifest(pack.manifest().clone(), location)
    });
    let hub = builder.offline(false).build().unwrap();
    let got = std::thread::scope(|scope| {
        let get = |pack: &NativePack| {
            let repo = pack.manifest().kernel.repo.clone();
            let hub = &hub;
            scope.spawn(move || hub.get(&repo, 1, Cpu).unwrap())
        };
        // Two threads for each.
        let threads: Vec<_> = packs.iter().chain(&packs).map(get).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(Arc::ptr_eq(&got[0], &got[2]) && Arc::ptr_eq(&got[1], &got[3]));
    assert_ne!(got[0].snapshot().repo(), got[1].snapshot().repo());
    assert_eq!(server.requests().len(), 2, "each archive was asked for once");
}
