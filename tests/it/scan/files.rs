//! What is read of a file, and files that want to be read for ever.

use kernelhub::elf::{Depth, ElfError, ElfFacts, MAX_NEEDED};

use crate::support::elf::{Elf, tag};
use crate::support::native::{KIT, compile_c};

fn read(bytes: &[u8]) -> Result<ElfFacts, ElfError> {
    let facts = ElfFacts::from_bytes(bytes, Depth::Whole);
    // A file says the same, wherever it stands.
    assert_eq!(ElfFacts::from_file(std::io::Cursor::new(bytes), Depth::Whole), facts);
    facts
}

#[test]
fn a_real_library_tells_what_the_tools_tell() {
    let facts = read(&compile_c("shared_static.cpp", "x", &["-Wl,-soname,libx.so.1", "-Wl,-rpath,/a:/b"])).unwrap();
    assert_eq!((facts.bits, facts.is_little_endian, facts.is_shared_object), (64, true, true));
    assert_eq!(facts.soname.as_deref(), Some("libx.so.1"));
    assert_eq!(facts.runpath, ["/a", "/b"]);
    let destructor = read(&compile_c("thread_local.cpp", "x", &[])).unwrap();
    assert!(destructor.needed.iter().any(|name| name == "libstdc++.so.6"), "{destructor:?}");
    assert!(destructor.needed_versions.iter().any(|need| need.version.starts_with("CXXABI_")), "{destructor:?}");
    assert!(!facts.has_executable_stack && !facts.has_text_relocations && !facts.has_writable_code);
    let kit = read(&KIT).unwrap();
    assert!(kit.needed_versions.iter().any(|need| need.library == "libc.so.6" && need.version.starts_with("GLIBC_")));
    assert_eq!(kit.unique.count, 0);
}

#[test]
fn what_the_dynamic_table_says_is_read() {
    let elf = Elf::default()
        .name(tag::NEEDED, "liba.so")
        .name(tag::NEEDED, "libb.so")
        .name(tag::SONAME, "libx.so")
        .name(tag::RPATH, "/r:$ORIGIN")
        .name(tag::RUNPATH, "/s")
        .name(tag::FILTER, "libf.so")
        .name(tag::AUXILIARY, "libg.so")
        .number(tag::TEXTREL, 0)
        .number(tag::PREINIT_ARRAY, 0)
        .number(tag::FLAGS, 0x10);
    let facts = read(&elf.build(b"")).unwrap();
    assert_eq!(
        (&facts.needed[..], facts.soname.as_deref()),
        (&["liba.so".to_owned(), "libb.so".to_owned()][..], Some("libx.so"))
    );
    assert_eq!(
        (&facts.rpath[..], &facts.runpath[..]),
        (&["/r".to_owned(), "$ORIGIN".to_owned()][..], &["/s".to_owned()][..])
    );
    assert_eq!(facts.filters, ["libf.so", "libg.so"]);
    assert!(facts.has_text_relocations && facts.has_preinit && facts.has_static_tls && facts.is_shared_object);
    assert!(!read(&Elf::default().number(tag::FLAGS_1, 0x0800_0000).build(b"")).unwrap().is_shared_object, "a program");
    assert!(!read(&Elf { kind: 2, ..Elf::default() }.build(b"")).unwrap().is_shared_object);
    assert!(
        read(&Elf { stack: None, ..Elf::default() }.build(b"")).unwrap().has_executable_stack,
        "the linker's default"
    );
    assert!(read(&Elf { stack: Some(7), ..Elf::default() }.build(b"")).unwrap().has_executable_stack);
    assert!(read(&Elf { segment: 7, ..Elf::default() }.build(b"")).unwrap().has_writable_code);
    assert_eq!(read(&Elf::default().build(b"")).unwrap().lacks, None);
    let fixed = read(&Elf { segment: 5, ..Elf::default() }.build(b"")).unwrap();
    assert_eq!(fixed.lacks, Some("a dynamic table that can be written to"), "the linker writes into it");
    let other = read(&Elf { machine: 183, ..Elf::default() }.build(b"")).unwrap();
    assert_eq!(other.machine, 183);
    assert_eq!(read(&Elf { class: 1, ..Elf::default() }.build(b"")).unwrap().bits, 32);
    assert!(!read(&Elf { order: 2, ..Elf::default() }.build(b"")).unwrap().is_little_endian);
}

/// Every table points where it wants; each gives its error, in no time.
#[test]
fn hostile_tables_end() {
    let endless = |tag: u64, tail: &[u8]| Elf::default().place(tag, 0).build(tail);
    // A list whose every entry leads a step on, and one that leads back by overflow.
    let step = |next: u32| [[1_u8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0].as_slice(), &next.to_le_bytes()].concat();
    let cases = [
        ("needed versions that step by a byte", endless(tag::VERNEED, &vec![1; 100_000])),
        ("needed versions that step for ever", endless(tag::VERNEED, &step(u32::MAX))),
        ("definitions that step by a byte", endless(tag::VERDEF, &vec![1; 100_000])),
        ("a hash table without bounds", endless(tag::HASH, &[0xff; 64]).clone()),
        (
            "a GNU hash table without bounds",
            Elf::default().place(tag::GNU_HASH, 0).place(tag::SYMTAB, 0).build(&[0xff; 64]),
        ),
        (
            "a GNU hash chain without an end",
            Elf::default().place(tag::GNU_HASH, 0).place(tag::SYMTAB, 0).build(
                &[
                    &1_u32.to_le_bytes()[..],
                    &1_u32.to_le_bytes(),
                    &0_u32.to_le_bytes(),
                    &0_u32.to_le_bytes(),
                    &1_u32.to_le_bytes(),
                    &[0; 4096],
                ]
                .concat(),
            ),
        ),
        ("names that are elsewhere", Elf::default().number(tag::NEEDED, u64::MAX).build(b"")),
        (
            "names behind the last address",
            Elf::default().number(tag::NEEDED, 1).number(tag::STRTAB, u64::MAX).build(b""),
        ),
        (
            "more libraries than any has",
            (0..=MAX_NEEDED).fold(Elf::default(), |elf, _| elf.name(tag::NEEDED, "x")).build(b""),
        ),
        (
            "a name without an end",
            Elf::default()
                .number(tag::NEEDED, 0)
                .build(b"")
                .into_iter()
                .map(|byte| if byte == 0 { 0 } else { byte })
                .collect(),
        ),
    ];
    for (what, file) in cases {
        let clock = std::time::Instant::now();
        let found = read(&file);
        assert!(clock.elapsed().as_millis() < 2000, "{what}: {:?}", clock.elapsed());
        if !what.starts_with("a name without") && !what.starts_with("a hash table") {
            assert!(found.is_err(), "{what}: {found:?}");
        }
    }
}

/// Cut anywhere, or with any byte changed, a library is read or refused.
#[test]
fn no_damage_to_a_library_panics() {
    let bytes = compile_c("shared_static.cpp", "x", &[]);
    for length in (0..bytes.len()).step_by(61) {
        let _ = ElfFacts::from_bytes(&bytes[..length], Depth::Whole);
    }
    let mut damaged = bytes.clone();
    for at in 0..bytes.len() {
        for value in [0, 0xff, bytes[at] ^ 1, bytes[at].wrapping_add(0x40)] {
            damaged[at] = value;
            let _ = ElfFacts::from_bytes(&damaged, Depth::Whole);
        }
        damaged[at] = bytes[at];
    }
}
