//! Which redirects are followed, and what they take along.

use reqwest::Url;

/// Most redirects followed for one request.
pub(super) const MAX_REDIRECTS: usize = 5;

/// Where a request stands on its way.
#[derive(Debug)]
pub(super) struct Route {
    current: Url,
    hops: usize,
    was_https: bool,
    left_origin: bool,
}

impl Route {
    pub(super) fn new(start: &Url) -> Self {
        Self { current: start.clone(), hops: 0, was_https: start.scheme() == "https", left_origin: false }
    }

    pub(super) fn current(&self) -> &Url {
        &self.current
    }

    /// Whether the request is still where it was sent: same scheme, host and port all the way. Once it has left, its
    /// credentials stay dropped, even if it is led back.
    pub(super) fn keeps_credentials(&self) -> bool {
        !self.left_origin
    }

    /// Takes one redirect, or says where it leads (without credentials) and why that is refused.
    pub(super) fn follow(&mut self, location: Option<&str>) -> Result<(), (String, &'static str)> {
        let Some(location) = location else { return Err(("nowhere".to_owned(), "without a readable Location")) };
        let Ok(mut target) = self.current.join(location) else {
            return Err(("no URL".to_owned(), "to a Location that is no URL"));
        };
        let left = target.origin() != self.current.origin();
        if left {
            self.left_origin = true;
            let cleared = target.set_username("").and_then(|()| target.set_password(None));
            if cleared.is_err() {
                return Err((target.scheme().to_owned(), "to a scheme other than http and https"));
            }
        }
        let shown = crate::fetch::location::without_credentials(&target).to_string();
        match target.scheme() {
            "http" if self.was_https => return Err((shown, "from https to http")),
            "http" | "https" => {}
            _ => return Err((shown, "to a scheme other than http and https")),
        }
        if self.hops == MAX_REDIRECTS {
            return Err((shown, "on after too many redirects"));
        }
        self.hops += 1;
        self.was_https |= target.scheme() == "https";
        self.current = target;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use reqwest::Url;

    use super::{MAX_REDIRECTS, Route};

    fn walk(start: &str, locations: &[&str]) -> Result<(String, bool), &'static str> {
        let mut route = Route::new(&Url::parse(start).unwrap());
        for location in locations {
            route.follow(Some(location)).map_err(|(_, reason)| reason)?;
        }
        Ok((route.current().to_string(), route.keeps_credentials()))
    }

    #[test]
    fn f14_credentials_stay_within_scheme_host_and_port() {
        let kept = |start: &str, locations: &[&str]| walk(start, locations).unwrap().1;
        assert!(kept("http://a/x", &["/y"]) && kept("http://a/x", &["http://a/y"]));
        assert!(kept("https://a/x", &["https://a:443/y"]));
        for locations in [&["http://b/"][..], &["http://a:81/"], &["https://a/"], &["http://b/", "http://a/"]] {
            assert!(!kept("http://a/x", locations), "{locations:?}");
        }
        assert_eq!(walk("http://a/", &["http://me:secret@b/z"]).unwrap().0, "http://b/z");
    }

    #[test]
    fn redirects_never_leave_https_and_end() {
        assert_eq!(walk("https://a/", &["http://a/"]), Err("from https to http"));
        assert_eq!(walk("http://a/", &["https://a/", "http://a/"]), Err("from https to http"));
        for target in ["file:///etc/passwd", "ftp://a/", "data:,x", "mailto:x@y"] {
            assert_eq!(walk("http://a/", &[target]), Err("to a scheme other than http and https"), "{target}");
        }
        assert_eq!(walk("http://a/", &["http://[::1"]), Err("to a Location that is no URL"));
        let many = ["/again"; MAX_REDIRECTS + 1];
        assert!(walk("http://a/", &many[..MAX_REDIRECTS]).is_ok());
        assert_eq!(walk("http://a/", &many), Err("on after too many redirects"));
        assert!(Route::new(&Url::parse("http://a/").unwrap()).follow(None).is_err());
    }
}
