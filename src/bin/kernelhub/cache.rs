//! `kernelhub cache`.

use clap::{Args, Subcommand};
use kernelhub::fetch::{CacheEntry, EntryKind, EntryState, PruneItem, PruneOptions};
use kernelhub::hub::{CheckedEntry, Hub, check_cache};
use kernelhub::names::RepoId;
use kernelhub::verify::VerifyError;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::manifests::HubOptions;
use crate::size::human;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List every build in the cache: complete, partial, or nothing that this program takes for a kernel.
    Ls(Common),
    /// Read and hash every complete build. Exit code 1 when one is not as published.
    Verify(Common),
    /// Remove leftovers: partial builds and downloads, blobs and refs of no build, archives that no manifest names.
    Prune(Prune),
    /// Print where the cache is.
    Where(Common),
}

#[derive(Args)]
struct Common {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubOptions,
}

#[derive(Args)]
struct Prune {
    /// Only this kernel's.
    #[arg(long, value_name = "ORG/NAME")]
    repo: Option<RepoId>,
    /// Also builds of commits that no branch or tag is at. A lock file may pin one of them.
    #[arg(long)]
    unreferenced: bool,
    /// Everything.
    #[arg(long)]
    all: bool,
    /// Say what would go, and remove nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    match &options.command {
        Command::Ls(common) => list(common),
        Command::Verify(common) => verify(common),
        Command::Prune(prune) => self::prune(prune),
        Command::Where(common) => locate(common),
    }
}

fn hub(common: &Common) -> Result<Hub, Failure> {
    Ok(common.hub.hub()?.0)
}

fn list(common: &Common) -> Result<(), Failure> {
    let entries = hub(common)?.cache().inventory()?;
    let total: u64 = entries.iter().map(|entry| entry.bytes).sum();
    if common.json {
        let rows: Vec<Value> = entries.iter().map(entry_json).collect();
        return crate::print_json(&json!({ "entries": rows, "bytes": total }));
    }
    for entry in &entries {
        println!("{:9}  {}  {}", state(entry), name(entry), human(entry.bytes));
        match &entry.state {
            EntryState::Partial { missing } if !missing.is_empty() => {
                println!("           missing: {}", missing.join(", ").escape_debug());
            }
            EntryState::Foreign { reason } => println!("           {}", reason.escape_debug()),
            _ => {}
        }
        println!("           {}", entry.path.display());
    }
    println!("{} builds, {}", entries.iter().filter(|entry| entry.variant.is_some()).count(), human(total));
    Ok(())
}

/// A fault with its causes.
pub(crate) fn words(fault: &VerifyError) -> String {
    let mut words = fault.to_string();
    let mut cause = std::error::Error::source(fault);
    while let Some(inner) = cause {
        words = format!("{words}: {inner}");
        cause = inner.source();
    }
    words
}

fn verify(common: &Common) -> Result<(), Failure> {
    let checked = check_cache(hub(common)?.cache())?;
    // A file that cannot be read is not known to be wrong, and no download makes it readable.
    let is_unread = |checked: &CheckedEntry| matches!(checked.fault, Some(VerifyError::Io { .. }));
    let faulty = checked.iter().filter(|checked| checked.fault.is_some()).count();
    let unread = checked.iter().filter(|checked| is_unread(checked)).count();
    let damaged = faulty - unread;
    let read = checked.iter().filter(|checked| checked.entry.snapshot.is_some()).count();
    if common.json {
        let row = |checked: &CheckedEntry| {
            let mut row = entry_json(&checked.entry);
            row["fault"] = checked.fault.as_ref().map_or(Value::Null, |fault| words(fault).into());
            row
        };
        let rows: Vec<Value> = checked.iter().map(row).collect();
        crate::print_json(&json!({
            "clean": faulty == 0,
            "verified": read - faulty,
            "damaged": damaged,
            "unreadable": unread,
            "entries": rows,
        }))?;
    } else {
        for checked in &checked {
            let CheckedEntry { entry, fault } = checked;
            let state = match fault {
                Some(_) if is_unread(checked) => "unreadable",
                Some(_) => "damaged",
                None if entry.snapshot.is_some() => "verified",
                None => state(entry),
            };
            println!("{state:9}  {}", name(entry));
            if let Some(fault) = fault {
                println!("           {}", words(fault));
            }
        }
        let more = if unread == 0 { String::new() } else { format!(", {unread} unreadable") };
        println!("{} builds verified, {damaged} damaged{more}", read - faulty);
    }
    if faulty == 0 {
        return Ok(());
    }
    if damaged == 0 {
        return Err(Failure::new(
            format!("{unread} of {read} builds in the cache cannot be read"),
            Some("give this user the right to read them"),
        ));
    }
    Err(Failure::new(
        format!("{damaged} of {read} builds in the cache are not as published"),
        Some("the next `kernelhub get` or `download` of them, while online, fetches them again"),
    ))
}

fn prune(options: &Prune) -> Result<(), Failure> {
    let hub = hub(&options.common)?;
    let what = PruneOptions { repo: options.repo.clone(), unreferenced: options.unreferenced, all: options.all };
    let plan = hub.cache().plan_prune(&what)?;
    if !options.dry_run {
        plan.apply()?;
    }
    if options.common.json {
        let row = |item: &PruneItem| json!({ "path": item.path, "reason": item.reason, "bytes": item.bytes });
        let rows: Vec<Value> = plan.items.iter().map(row).collect();
        return crate::print_json(&json!({ "removed": !options.dry_run, "bytes": plan.bytes(), "items": rows }));
    }
    for item in &plan.items {
        println!("{}  {} ({})", human(item.bytes), item.path.display(), item.reason);
    }
    println!("{} {}", human(plan.bytes()), if options.dry_run { "would be free" } else { "are free" });
    Ok(())
}

fn locate(common: &Common) -> Result<(), Failure> {
    let hub = hub(common)?;
    let (archives, repos) = (hub.cache().root(), hub.cache().hub().root());
    if common.json {
        return crate::print_json(&json!({ "archives": archives, "hub": repos }));
    }
    println!("archives  {}", archives.display());
    println!("hub       {}", repos.display());
    Ok(())
}

fn state(entry: &CacheEntry) -> &'static str {
    match entry.state {
        EntryState::Complete => "complete",
        EntryState::Partial { .. } => "partial",
        _ => "foreign",
    }
}

fn name(entry: &CacheEntry) -> String {
    let repo = entry.repo.as_ref().map_or_else(|| "(unknown)".to_owned(), ToString::to_string);
    let version = entry.version.map_or_else(String::new, |version| format!("@v{version}"));
    let revision: String = entry.revision.as_deref().unwrap_or("-").chars().take(19).collect();
    let variant =
        entry.variant.as_ref().map_or_else(|| "-".to_owned(), |variant| variant.to_string().escape_debug().to_string());
    format!("{:32}  {revision:19}  {variant:32}", format!("{repo}{version}"))
}

fn entry_json(entry: &CacheEntry) -> Value {
    let (missing, reason) = match &entry.state {
        EntryState::Partial { missing } => (Some(missing), None),
        EntryState::Foreign { reason } => (None, Some(reason)),
        _ => (None, None),
    };
    json!({
        "kind": match entry.kind { EntryKind::Hub(repo_type) => repo_type.to_string(), EntryKind::Archive => "archive".to_owned() },
        "repo": entry.repo,
        "version": entry.version,
        "revision": entry.revision,
        "refs": entry.refs,
        "variant": entry.variant,
        "state": state(entry),
        "missing": missing,
        "reason": reason,
        "bytes": entry.bytes,
        "path": entry.path,
    })
}
