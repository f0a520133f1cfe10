//! A Sigstore of the tests' own: an authority, a log of certificates, a transparency log, and what a workflow gets from
//! them when it signs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kernelhub::digest::Sha256Digest;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData as _, SanType, SigningKey as _, date_time_ymd,
};
use serde_json::{Value, json};

pub(crate) const ISSUER: &str = "https://token.actions.githubusercontent.com";
pub(crate) const REPOSITORY: &str = "https://github.com/acme/kernels";
pub(crate) const SIGNER: &str = "https://github.com/acme/kernels/.github/workflows/build.yaml@refs/heads/main";

/// Noon of the one day on which certificates hold, in seconds since 1970.
pub(crate) const SIGNED_AT: i64 = 1_767_268_800;

const FULCIO: [u64; 8] = [1, 3, 6, 1, 4, 1, 57264, 1];
const SCT_LIST: [u64; 10] = [1, 3, 6, 1, 4, 1, 11129, 2, 4, 2];

/// What a signature says, and what is wrong with it.
pub(crate) struct Signing<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) repository: &'a str,
    pub(crate) signer: &'a str,
    pub(crate) at: i64,
    /// `false`: no log of certificates saw the certificate.
    pub(crate) with_sct: bool,
    /// Another log of certificates than the trust root's.
    pub(crate) foreign_ct: bool,
}

impl Default for Signing<'_> {
    fn default() -> Self {
        let (with_sct, foreign_ct) = (true, false);
        Self { issuer: ISSUER, repository: REPOSITORY, signer: SIGNER, at: SIGNED_AT, with_sct, foreign_ct }
    }
}

pub(crate) struct Sigstore {
    authority: Issuer<'static, KeyPair>,
    certificate: Vec<u8>,
    certificates: KeyPair,
    stranger: KeyPair,
    log: KeyPair,
}

fn key() -> KeyPair {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap()
}

fn id(key: &KeyPair) -> [u8; 32] {
    *Sha256Digest::of(&key.subject_public_key_info()).as_bytes()
}

impl Sigstore {
    pub(crate) fn new() -> Self {
        let (authority, mut params) = (key(), CertificateParams::default());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.not_before = date_time_ymd(2025, 1, 1);
        params.not_after = date_time_ymd(2035, 1, 1);
        let certificate = params.self_signed(&authority).unwrap().der().to_vec();
        let authority = Issuer::new(params, authority);
        Self { authority, certificate, certificates: key(), stranger: key(), log: key() }
    }

    /// The trust root that names all of it.
    pub(crate) fn root(&self) -> String {
        let log = |url: &str, key: &KeyPair| {
            json!({
                "baseUrl": url,
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": BASE64.encode(key.subject_public_key_info()),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": { "start": "2025-01-01T00:00:00Z" },
                },
                "logId": { "keyId": BASE64.encode(id(key)) },
            })
        };
        json!({
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log("https://log.test", &self.log)],
            "certificateAuthorities": [{
                "subject": { "organization": "test", "commonName": "test" },
                "uri": "https://authority.test",
                "certChain": { "certificates": [{ "rawBytes": BASE64.encode(&self.certificate) }] },
                "validFor": { "start": "2025-01-01T00:00:00Z" },
            }],
            "ctlogs": [log("https://ct.test", &self.certificates)],
            "timestampAuthorities": [],
        })
        .to_string()
    }

    /// The bundle that a workflow makes for these bytes.
    pub(crate) fn sign(&self, bytes: &[u8], signing: &Signing<'_>) -> Value {
        let key = key();
        let certificate = self.certificate(&key, signing);
        let signature = key.sign(bytes).unwrap();
        let digest = Sha256Digest::of(bytes);
        let pem = format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines(&certificate));
        let body = BASE64.encode(
            json!({
                "apiVersion": "0.0.1",
                "kind": "hashedrekord",
                "spec": {
                    "data": { "hash": { "algorithm": "sha256", "value": digest.to_string() } },
                    "signature": {
                        "content": BASE64.encode(&signature),
                        "publicKey": { "content": BASE64.encode(pem) },
                    },
                },
            })
            .to_string(),
        );
        let log_id = Sha256Digest::from_bytes(id(&self.log)).to_string();
        let promised = json!({ "body": body, "integratedTime": signing.at, "logID": log_id, "logIndex": 0 });
        let promise = self.log.sign(promised.to_string().as_bytes()).unwrap();
        // A log of one entry: its root is the leaf.
        let leaf = [&[0][..], &BASE64.decode(&body).unwrap()].concat();
        let root = BASE64.encode(Sha256Digest::of(&leaf).as_bytes());
        let note = format!("log.test\n1\n{root}\n");
        let mark = [&id(&self.log)[..4], &self.log.sign(note.as_bytes()).unwrap()].concat();
        let checkpoint = format!("{note}\n\u{2014} log.test {}\n", BASE64.encode(mark));
        json!({
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": { "rawBytes": BASE64.encode(&certificate) },
                "tlogEntries": [{
                    "logIndex": "0",
                    "logId": { "keyId": BASE64.encode(id(&self.log)) },
                    "kindVersion": { "kind": "hashedrekord", "version": "0.0.1" },
                    "integratedTime": signing.at.to_string(),
                    "inclusionPromise": { "signedEntryTimestamp": BASE64.encode(promise) },
                    "inclusionProof": {
                        "logIndex": "0",
                        "rootHash": root,
                        "treeSize": "1",
                        "hashes": [],
                        "checkpoint": { "envelope": checkpoint },
                    },
                    "canonicalizedBody": body,
                }],
            },
            "messageSignature": {
                "messageDigest": { "algorithm": "SHA2_256", "digest": BASE64.encode(digest.as_bytes()) },
                "signature": BASE64.encode(&signature),
            },
        })
    }

    /// A workflow's certificate, which the log of certificates has seen.
    fn certificate(&self, key: &KeyPair, signing: &Signing<'_>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.serial_number = Some(vec![0x2a].into());
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2026, 1, 2);
        params.subject_alt_names = vec![SanType::URI(signing.signer.try_into().unwrap())];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        let claim = |number: u64, content: Vec<u8>| {
            CustomExtension::from_oid_content(&[&FULCIO[..], &[number]].concat(), content)
        };
        params.custom_extensions = vec![
            claim(1, signing.issuer.as_bytes().to_vec()),
            claim(8, utf8(signing.issuer)),
            claim(9, utf8(signing.signer)),
            claim(12, utf8(signing.repository)),
        ];
        if signing.with_sct {
            let seen = params.signed_by(key, &self.authority).unwrap().der().to_vec();
            let log = if signing.foreign_ct { &self.stranger } else { &self.certificates };
            let list = self.sct(to_be_signed(&seen), log);
            params.custom_extensions.push(CustomExtension::from_oid_content(&SCT_LIST, list));
        }
        params.signed_by(key, &self.authority).unwrap().der().to_vec()
    }

    /// What the log of certificates signs about a certificate (RFC 6962, section 3.2), as the extension has it.
    fn sct(&self, to_be_signed: &[u8], log: &KeyPair) -> Vec<u8> {
        let time = (SIGNED_AT.unsigned_abs() * 1000).to_be_bytes();
        let authority = Sha256Digest::of(&self.authority.key().subject_public_key_info());
        let length = u32::try_from(to_be_signed.len()).unwrap().to_be_bytes();
        let signed = [&[0, 0][..], &time, &[0, 1], authority.as_bytes(), &length[1..], to_be_signed, &[0, 0]].concat();
        let signature = log.sign(&signed).unwrap();
        let sct = [&[0][..], &id(log), &time, &[0, 0, 4, 3], &two_bytes(signature.len()), &signature].concat();
        let list = [&two_bytes(sct.len() + 2)[..], &two_bytes(sct.len()), &sct].concat();
        der(0x04, &list)
    }
}

fn two_bytes(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap().to_be_bytes()
}

fn utf8(text: &str) -> Vec<u8> {
    der(0x0c, text.as_bytes())
}

/// A DER value shorter than 64 KiB.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = two_bytes(content.len());
    let length = match (high, low) {
        (0, low) if low < 0x80 => vec![low],
        (0, low) => vec![0x81, low],
        (high, low) => vec![0x82, high, low],
    };
    [&[tag][..], &length, content].concat()
}

/// The first part of a certificate, which its issuer signs.
fn to_be_signed(certificate: &[u8]) -> &[u8] {
    // Both lengths take two bytes: a certificate has more than 255 of them, and fewer than 64 KiB.
    assert_eq!((certificate[1], certificate[5]), (0x82, 0x82));
    let length = usize::from(u16::from_be_bytes([certificate[6], certificate[7]]));
    &certificate[4..8 + length]
}

fn lines(bytes: &[u8]) -> String {
    let text = BASE64.encode(bytes);
    text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect::<Vec<_>>().join("\n")
}
