//! What a download tells whoever watches it.

/// Receives the progress of downloads. The library prints nothing; a program draws bars by this.
///
/// Calls come from the thread that fetches, in order: `started`, any number of `advanced`, `finished`. After an error
/// `finished` does not come. Downloads of different kernels may run at the same time, each under its name.
pub trait Progress: Sync {
    /// A download begins. `total`: the bytes that the manifest declares, where it does.
    fn started(&self, name: &str, total: Option<u64>) {
        let _ = (name, total);
    }

    /// More bytes arrived: how many since the last call.
    fn advanced(&self, name: &str, bytes: u64) {
        let _ = (name, bytes);
    }

    /// The download is complete, checked and in the cache.
    fn finished(&self, name: &str) {
        let _ = name;
    }

    /// Something worth telling, such as that another process is downloading the same archive.
    fn note(&self, message: &str) {
        let _ = message;
    }
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}
