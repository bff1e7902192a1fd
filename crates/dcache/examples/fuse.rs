//! A directory seen through another one: a FUSE file system on the cache.
//!
//!     cargo run --release -p manyway-dcache --features fuse --example fuse -- SOURCE MOUNTPOINT

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use fuser::*;
use manyway_dcache::{Answer, Config, Error, Handle, Item, Kind, New, Put, Rename, Store, Tree, Ttl};

/// The source. An inode is a descriptor (O_PATH) that stands for the file, whatever it is called by now.
struct Source;
/// For how long the kernel need not ask. The cache believes what goes through it until it is changed.
const TTL: Duration = Duration::from_secs(1);
const O_PATH_NOFOLLOW: i32 = 0o10_000_000 | 0o400_000;

fn path(directory: &File, name: &[u8]) -> PathBuf {
    Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(OsStr::from_bytes(name))
}

fn item(path: &Path) -> Result<Item<File>, Error> {
    let file = OpenOptions::new().read(true).custom_flags(O_PATH_NOFOLLOW).open(path)?;
    let meta = file.metadata()?;
    if meta.is_symlink() {
        return Ok(Item::new(Kind::Link, file).id(meta.ino()).target(fs::read_link(path)?.into_os_string().into_vec()));
    }
    Ok(Item::new(if meta.is_dir() { Kind::Directory } else { Kind::File }, file).id(meta.ino()))
}

impl Store for Source {
    type Inode = File;
    fn lookup(&self, directory: &File, name: &[u8]) -> Result<Answer<File>, Error> {
        match item(&path(directory, name)) {
            Err(Error::NotFound) => Ok(Answer::Absent(Ttl::Forever)),
            found => found.map(Answer::Found),
        }
    }
    fn list(&self, directory: &File, put: Put<'_, File>) -> Result<Ttl, Error> {
        for entry in fs::read_dir(path(directory, b"."))? {
            let name = entry?.file_name();
            put(name.as_bytes(), item(&path(directory, name.as_bytes()))?);
        }
        Ok(Ttl::Forever)
    }
    fn create(&self, directory: &File, name: &[u8], new: New<'_>) -> Result<Item<File>, Error> {
        match new {
            New::File(mode) => drop(OpenOptions::new().write(true).create_new(true).mode(mode).open(path(directory, name))?),
            New::Directory(_) => fs::create_dir(path(directory, name))?,
            _ => return Err(Error::Unsupported),
        }
        item(&path(directory, name))
    }
    fn unlink(&self, directory: &File, name: &[u8]) -> Result<(), Error> {
        Ok(fs::remove_file(path(directory, name))?)
    }
    fn rmdir(&self, directory: &File, name: &[u8]) -> Result<(), Error> {
        Ok(fs::remove_dir(path(directory, name))?)
    }
    fn rename(&self, from: (&File, &[u8]), to: (&File, &[u8]), how: Rename) -> Result<(), Error> {
        if how == Rename::Replace { Ok(fs::rename(path(from.0, from.1), path(to.0, to.1))?) } else { Err(Error::Invalid) }
    }
}

/// Answers the kernel: with an error's number, or with the value.
macro_rules! answer {
    ($reply:ident, $result:expr, $value:pat => $ok:expr) => {
        match $result {
            Ok($value) => $ok,
            Err(e) => $reply.error(Errno::from_i32(e.errno())),
        }
    };
}

struct Mirror(Tree<Source>);
impl Mirror {
    /// The kernel knows a node by its number, as long as it has look-ups to forget: those are the node's pins.
    fn node(&self, number: INodeNo) -> Result<Handle<File>, Error> {
        self.0.cache().pinned(number.0).ok_or(Error::Stale)
    }
    fn attr(&self, node: &Handle<File>) -> Result<FileAttr, Error> {
        let m = node.inode().metadata()?;
        let time = |secs: i64| UNIX_EPOCH + Duration::from_secs(secs as u64);
        let (atime, mtime, ctime, crtime) = (time(m.atime()), time(m.mtime()), time(m.ctime()), UNIX_EPOCH);
        let (perm, nlink, uid, gid, rdev) = (m.mode() as u16 & 0o7777, m.nlink() as u32, m.uid(), m.gid(), m.rdev() as u32);
        let (ino, size, blocks, blksize, kind) = (INodeNo(node.number()), m.size(), m.blocks(), m.blksize() as u32, kind(node));
        Ok(FileAttr { ino, size, blocks, atime, mtime, ctime, crtime, kind, perm, nlink, uid, gid, rdev, blksize, flags: 0 })
    }
    fn enter(&self, node: Result<Handle<File>, Error>, reply: ReplyEntry) {
        answer!(reply, node.and_then(|n| Ok((self.attr(&n)?, n.pin(1)))), (attr, _) => reply.entry(&TTL, &attr, Generation(0)));
    }
}

fn kind(node: &Handle<File>) -> FileType {
    [FileType::Directory, FileType::Symlink, FileType::RegularFile][node.kind() as usize]
}

impl Filesystem for Mirror {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.enter(self.node(parent).and_then(|dir| self.0.lookup(&dir, name.as_bytes())), reply);
    }
    fn forget(&self, _: &Request, number: INodeNo, n: u64) {
        self.0.cache().unpin(number.0, n as u32);
    }
    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.node(number).and_then(|n| self.attr(&n)), attr => reply.attr(&TTL, &attr));
    }
    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        answer!(reply, self.node(number).and_then(|n| self.0.readlink(&n)), target => reply.data(&target));
    }
    fn mknod(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, _: u32, reply: ReplyEntry) {
        self.enter(self.node(parent).and_then(|d| self.0.create(&d, name.as_bytes(), New::File(mode & 0o7777 & !umask))), reply);
    }
    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        self.enter(self.node(parent).and_then(|d| self.0.create(&d, name.as_bytes(), New::Directory(0o755))), reply);
    }
    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.node(parent).and_then(|d| self.0.unlink(&d, name.as_bytes())), () => reply.ok());
    }
    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.node(parent).and_then(|d| self.0.rmdir(&d, name.as_bytes())), () => reply.ok());
    }
    fn rename(&self, _: &Request, from: INodeNo, name: &OsStr, to: INodeNo, new: &OsStr, flags: RenameFlags, reply: ReplyEmpty) {
        let how = if flags.is_empty() { Rename::Replace } else { Rename::NoReplace };
        let rename = || self.0.rename((&self.node(from)?, name.as_bytes()), (&self.node(to)?, new.as_bytes()), how);
        answer!(reply, rename(), () => reply.ok());
    }
    fn read(&self, _: &Request, n: INodeNo, _: FileHandle, at: u64, size: u32, _: OpenFlags, _: Option<LockOwner>, reply: ReplyData) {
        let mut data = vec![0; size as usize];
        let file = self.node(n).and_then(|n| Ok(File::open(format!("/proc/self/fd/{}", n.inode().as_raw_fd()))?));
        answer!(reply, file.and_then(|f| Ok(f.read_at(&mut data, at)?)), n => reply.data(&data[..n]));
    }
    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, from: u64, mut reply: ReplyDirectory) {
        let names = self.node(number).and_then(|dir| self.0.list(&dir)).unwrap_or_default();
        let mut rest = names.iter().zip(1..).skip(from as usize);
        while rest.next().is_some_and(|((name, node), at)| !reply.add(INodeNo(node.number()), at, kind(node), OsStr::from_bytes(name))) {}
        reply.ok();
    }
}

fn main() -> std::io::Result<()> {
    let [source, mountpoint] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else { panic!("usage: fuse SOURCE MOUNTPOINT") };
    let root = OpenOptions::new().read(true).custom_flags(O_PATH_NOFOLLOW).open(source)?;
    fuser::mount(Mirror(Tree::new(Source, root, Config::new().entries(10_000))), mountpoint, &fuser::Config::default())
}
