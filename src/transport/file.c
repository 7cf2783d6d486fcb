/*
 * file.c
 *		Objects as files: complete under their name, or not there.
 *
 * On the way down to the key's directory every directory is fsynced before the
 * next one is entered, whoever made that one and when: a process that was killed
 * between mkdir and fsync leaves a directory that looks like any other.  So when
 * the file gets its name, its own directory is the only one left to fsync.
 *
 * Nothing here raises an ERROR; every descriptor is closed by the function that
 * opened it.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cryptohash.h"
#include "common/inject.h"
#include "common/sha2.h"
#include "storage/fd.h"
#include "transport/file.h"
#include "utils/resowner.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE (1 << 0)
#endif

/* Directory, its child or the file, and one more while a file is compared. */
#define DESCRIPTORS_AT_ONCE 3

/* How much one write() is given. */
#define WRITE_SLICE (1024 * 1024)

#define READ_SLICE (32 * 1024)

#define DIGEST_HEX_LENGTH (2 * PG_SHA256_DIGEST_LENGTH)

/* What FilePut() was asked for, and where it has come to. */
typedef struct FilePutWork
{
	const char *directory;
	const char *key;
	const char *body;
	size_t		length;
	const char *const *digests;
	int			ndigests;
	char		temporary[MAXPGPATH];	/* name inside the key's directory */
	const char *name;			/* likewise: last segment of the key */
	FilePutResult *result;
} FilePutWork;

/*
 * Notes what could not be done with which path: the directory, the first
 * key_length bytes of the key, and a name, where given.  A path that is too long
 * is cut, so that the reason behind it is not.
 */
static void
Fail(FilePutWork *work, int error_number, const char *what, int key_length, const char *name)
{
	FilePutResult *result = work->result;
	char		path[sizeof(result->error) - 128];

	while (key_length > 0 && work->key[key_length - 1] == '/')
		key_length--;
	snprintf(path, sizeof(path), "%s%s%.*s%s%s", work->directory,
			 key_length > 0 ? "/" : "", key_length, work->key,
			 name[0] != '\0' ? "/" : "", name);

	result->outcome = FILE_PUT_FAILED;
	result->error_number = error_number;
	errno = error_number;
	snprintf(result->error, sizeof(result->error), "could not %s \"%s\": %m", what, path);
}

/* Fail() for something in the key's directory, or for that directory itself. */
static void
FailInside(FilePutWork *work, int error_number, const char *what, const char *name)
{
	Fail(work, error_number, what, (int) (work->name - work->key), name);
}

/* 0 or an errno; a file system that cannot fsync directories is not blamed. */
static int
SyncDirectory(int fd)
{
	int			error_number = INCSINK_POINT_ERRNO("file-dir-fsync");

	if (error_number != 0)
		return error_number;
	while (fsync(fd) < 0)
	{
		if (errno == EBADF || errno == EINVAL)
			return 0;
		if (errno != EINTR)
			return errno;
	}
	return 0;
}

static int
SyncFile(int fd)
{
	int			error_number = INCSINK_POINT_ERRNO("file-fsync");

	if (error_number != 0)
		return error_number;
	while (fsync(fd) < 0)
	{
		if (errno != EINTR)
			return errno;
	}
	return 0;
}

/* Opens a directory inside another, or makes it; -1 and errno when it cannot. */
static int
EnterDirectory(int parent, const char *name)
{
	const int	flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int			fd = openat(parent, name, flags);
	int			error_number;

	if (fd >= 0 || errno != ENOENT)
		return fd;
	error_number = INCSINK_POINT_ERRNO("file-mkdir");
	if (error_number != 0)
	{
		errno = error_number;
		return -1;
	}
	if (mkdirat(parent, name, S_IRWXU) < 0 && errno != EEXIST)
		return -1;
	return openat(parent, name, flags);
}

/*
 * Opens the directory that key's last segment belongs into, making what is
 * missing; -1 when that fails.
 */
static int
OpenKeyDirectory(FilePutWork *work)
{
	const char *segment = work->key;
	const char *slash;
	int			fd = open(work->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		Fail(work, errno, "open directory", 0, "");

	while (fd >= 0 && (slash = strchr(segment, '/')) != NULL)
	{
		char		name[MAXPGPATH];
		int			child;
		int			error_number;
		int			done = (int) (segment - work->key);

		strlcpy(name, segment, slash - segment + 1);
		child = EnterDirectory(fd, name);
		if (child < 0)
			Fail(work, errno, "open or create directory", (int) (slash - work->key), "");
		else if ((error_number = SyncDirectory(fd)) != 0)
		{
			Fail(work, error_number, "fsync directory", done, "");
			close(child);
			child = -1;
		}
		close(fd);
		fd = child;
		segment = slash + 1;
	}
	return fd;
}

/* Feeds all that a descriptor holds to hash; 0 or an errno. */
static int
HashDescriptor(int fd, pg_cryptohash_ctx *hash)
{
	uint8		slice[READ_SLICE];
	ssize_t		length;

	for (;;)
	{
		int			error_number = INCSINK_POINT_ERRNO("file-read");

		if (error_number != 0)
			return error_number;
		length = read(fd, slice, sizeof(slice));
		if (length == 0)
			return 0;
		if (length < 0 && errno != EINTR)
			return errno;
		if (length > 0 && pg_cryptohash_update(hash, slice, length) < 0)
			return ENOTSUP;
	}
}

/*
 * SHA-256 of what a descriptor holds, in lower-case hex; 0 or an errno.  With
 * OpenSSL pg_cryptohash_create() remembers the context in CurrentResourceOwner,
 * which there is none of outside a transaction, and may raise for want of memory
 * (cryptohash_openssl.c): hence an owner for the time being, and the PG_TRY.
 */
static int
DigestOfFile(int fd, char *hex)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner saved_owner = CurrentResourceOwner;
	volatile ResourceOwner owner = NULL;
	volatile int error_number = 0;

	PG_TRY();
	{
		uint8		digest[PG_SHA256_DIGEST_LENGTH];
		pg_cryptohash_ctx *hash;
		int			i;

		owner = ResourceOwnerCreate(NULL, "incsink file");
		CurrentResourceOwner = owner;
		hash = pg_cryptohash_create(PG_SHA256);
		if (hash == NULL)
			error_number = ENOMEM;
		else if (pg_cryptohash_init(hash) < 0)
			error_number = ENOTSUP;
		else
			error_number = HashDescriptor(fd, hash);
		if (error_number == 0 && pg_cryptohash_final(hash, digest, sizeof(digest)) < 0)
			error_number = ENOTSUP;
		pg_cryptohash_free(hash);
		for (i = 0; error_number == 0 && i < sizeof(digest); i++)
			sprintf(hex + 2 * i, "%02x", digest[i]);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		error_number = ENOMEM;
	}
	PG_END_TRY();

	CurrentResourceOwner = saved_owner;
	if (owner != NULL)
	{
		ResourceOwnerRelease(owner, RESOURCE_RELEASE_BEFORE_LOCKS, false, false);
		ResourceOwnerDelete(owner);
	}
	return error_number;
}

/* Is the digest of what the descriptor holds one of those given? */
static bool
IsOurs(FilePutWork *work, int fd, int *error_number)
{
	char		hex[DIGEST_HEX_LENGTH + 1];
	int			i;

	*error_number = DigestOfFile(fd, hex);
	for (i = 0; *error_number == 0 && i < work->ndigests; i++)
	{
		if (strcmp(work->digests[i], hex) == 0)
			return true;
	}
	return false;
}

/*
 * Looks at what stands under the name already and sets the outcome; false when
 * there is nothing.  Ours is fsynced again: whoever gave it its name may have
 * been killed right after.  O_NONBLOCK is for a FIFO of that name.
 */
static bool
JudgeExisting(FilePutWork *work, int directory_fd)
{
	struct stat status;
	int			error_number = 0;
	int			fd;

	fd = openat(directory_fd, work->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return false;
	work->result->outcome = FILE_PUT_EXISTS_OTHER;
	if (fd < 0)
	{
		/* A symbolic link or a socket is there, and no file of ours. */
		if (errno != ELOOP && errno != ENXIO)
			FailInside(work, errno, "open file", work->name);
		return true;
	}
	if (fstat(fd, &status) < 0)
		FailInside(work, errno, "stat file", work->name);
	else if (S_ISREG(status.st_mode) && IsOurs(work, fd, &error_number))
	{
		work->result->outcome = FILE_PUT_EXISTS_SAME;
		if ((error_number = SyncFile(fd)) != 0)
			FailInside(work, error_number, "fsync file", work->name);
		else if ((error_number = SyncDirectory(directory_fd)) != 0)
			FailInside(work, error_number, "fsync directory", "");
	}
	else if (error_number != 0)
		FailInside(work, error_number, "read file", work->name);
	close(fd);
	return true;
}

/*
 * Makes the temporary file.  One that a killed process left is removed, not
 * written over: where the file system cannot rename without replacing, it may be
 * a second name of the finished file.
 */
static int
CreateTemporary(FilePutWork *work, int directory_fd)
{
	int			error_number = INCSINK_POINT_ERRNO("file-open");
	int			fd = -1;

	if (error_number == 0 && unlinkat(directory_fd, work->temporary, 0) < 0 && errno != ENOENT)
		error_number = errno;
	if (error_number == 0)
	{
		fd = openat(directory_fd, work->temporary,
					O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
		if (fd < 0)
			error_number = errno;
	}
	if (fd < 0)
		FailInside(work, error_number, "create file", work->temporary);
	return fd;
}

/* Writes the body; 0 or an errno. */
static int
WriteBody(FilePutWork *work, int fd)
{
	size_t		written = 0;

	while (written < work->length)
	{
		int			error_number = INCSINK_POINT_ERRNO("file-write");
		ssize_t		n;

		if (error_number != 0)
			return error_number;
		n = write(fd, work->body + written, Min(work->length - written, WRITE_SLICE));
		if (n < 0 && errno != EINTR)
			return errno;
		if (n == 0)
			return ENOSPC;
		if (n > 0)
			written += n;
	}
	return 0;
}

/* Writes the temporary file and makes it durable; false when that fails. */
static bool
WriteTemporary(FilePutWork *work, int fd)
{
	int			error_number = INCSINK_POINT_ERRNO("file-before-write");

	if (error_number == 0)
		error_number = WriteBody(work, fd);
	if (error_number != 0)
	{
		FailInside(work, error_number, "write file", work->temporary);
		return false;
	}
	error_number = SyncFile(fd);
	if (error_number != 0)
		FailInside(work, error_number, "fsync file", work->temporary);
	return error_number == 0;
}

/*
 * Does the temporary name still mean our file?  A process that stood still for a
 * while may have been taken for dead and its file replaced by its successor's,
 * which must not be given its name before it is complete.
 */
static int
CheckTemporary(FilePutWork *work, int directory_fd, int fd)
{
	struct stat ours;
	struct stat named;

	if (fstat(fd, &ours) < 0 ||
		fstatat(directory_fd, work->temporary, &named, AT_SYMLINK_NOFOLLOW) < 0)
		return errno;
	return ours.st_dev == named.st_dev && ours.st_ino == named.st_ino ? 0 : ESTALE;
}

/*
 * Gives the temporary file its name unless that is taken: 0 or an errno, EEXIST
 * when it is.  EINVAL is a file system without RENAME_NOREPLACE (rename(2)).
 * glibc before 2.28 has no renameat2().
 */
static int
RenameNoReplace(FilePutWork *work, int directory_fd)
{
	int			error_number = INCSINK_POINT_ERRNO("file-rename");

	if (error_number != 0)
		return error_number;
	if (syscall(SYS_renameat2, directory_fd, work->temporary, directory_fd, work->name,
				RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return errno;
	error_number = INCSINK_POINT_ERRNO("file-link");
	if (error_number != 0)
		return error_number;
	if (linkat(directory_fd, work->temporary, directory_fd, work->name, 0) < 0)
		return errno;
	/* A name too many does no harm. */
	(void) unlinkat(directory_fd, work->temporary, 0);
	return 0;
}

/*
 * Gives the file its name and makes that durable.  Once it has its name it stays,
 * also when that cannot be made durable: somebody may be reading it, and the
 * next attempt finds it.
 */
static void
PublishTemporary(FilePutWork *work, int directory_fd, int fd)
{
	int			error_number = INCSINK_POINT_ERRNO("file-before-rename");

	if (error_number == 0)
		error_number = CheckTemporary(work, directory_fd, fd);
	if (error_number == 0)
		error_number = RenameNoReplace(work, directory_fd);
	if (error_number == EEXIST && JudgeExisting(work, directory_fd))
		return;
	if (error_number != 0)
	{
		FailInside(work, error_number, "rename file to", work->name);
		return;
	}

	error_number = INCSINK_POINT_ERRNO("file-after-rename");
	if (error_number == 0)
		error_number = SyncDirectory(directory_fd);
	if (error_number == 0)
		error_number = INCSINK_POINT_ERRNO("file-after-dir-fsync");
	if (error_number == 0)
		work->result->outcome = FILE_PUT_STORED;
	else
		FailInside(work, error_number, "fsync directory", "");
}

/* Stores the body in the directory that the key belongs into. */
static void
PutInside(FilePutWork *work, int directory_fd)
{
	int			fd;

	if (JudgeExisting(work, directory_fd))
		return;
	fd = CreateTemporary(work, directory_fd);
	if (fd < 0)
		return;
	if (WriteTemporary(work, fd))
		PublishTemporary(work, directory_fd, fd);

	/* Renamed already, unless something came between: then the name is gone. */
	if (work->result->outcome != FILE_PUT_STORED &&
		CheckTemporary(work, directory_fd, fd) == 0)
		(void) unlinkat(directory_fd, work->temporary, 0);
	close(fd);
}

/* Is this a key, or batch id, that stays below the directory? */
static bool
IsRelativeKey(const char *key, bool one_segment)
{
	const char *segment = key;

	for (;;)
	{
		size_t		length = strcspn(segment, "/");

		if (length == 0 || length >= MAXPGPATH ||
			(length <= 2 && strspn(segment, ".") >= length))
			return false;
		if (segment[length] == '\0')
			return true;
		if (one_segment)
			return false;
		segment += length + 1;
	}
}

static void
NameTemporary(char *name, const char *batch_id)
{
	snprintf(name, MAXPGPATH, ".incsink-%s.tmp", batch_id);
}

/* Opens the directory that key's last segment belongs into; -1 if it is not there. */
static int
FindKeyDirectory(const char *directory, const char *key)
{
	const int	flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	const char *slash;
	int			fd = open(directory, flags);

	for (; fd >= 0 && (slash = strchr(key, '/')) != NULL; key = slash + 1)
	{
		char		name[MAXPGPATH];
		int			child;

		strlcpy(name, key, slash - key + 1);
		child = openat(fd, name, flags | O_NOFOLLOW);
		close(fd);
		fd = child;
	}
	return fd;
}

/* Counts those that a call has open at once among the server's. */
static void
ReserveDescriptors(void)
{
	for (int i = 0; i < DESCRIPTORS_AT_ONCE; i++)
		ReserveExternalFD();
}

static void
ReleaseDescriptors(void)
{
	for (int i = 0; i < DESCRIPTORS_AT_ONCE; i++)
		ReleaseExternalFD();
}

/* See file.h. */
void
FileForget(const char *directory, const char *key, const char *batch_id)
{
	char		temporary[MAXPGPATH];
	int			fd;

	if (!IsRelativeKey(key, false) || !IsRelativeKey(batch_id, true))
		return;
	NameTemporary(temporary, batch_id);
	ReserveDescriptors();
	fd = FindKeyDirectory(directory, key);
	if (fd >= 0)
	{
		(void) unlinkat(fd, temporary, 0);
		close(fd);
	}
	ReleaseDescriptors();
}

/* See file.h. */
void
FilePut(const char *directory, const char *key, const char *batch_id,
		const char *body, size_t length,
		const char *const *digests, int ndigests,
		FilePutResult *result)
{
	FilePutWork work = {0};
	const char *slash = strrchr(key, '/');
	int			directory_fd;

	memset(result, 0, sizeof(FilePutResult));
	result->outcome = FILE_PUT_FAILED;
	work.directory = directory;
	work.key = key;
	work.name = slash == NULL ? key : slash + 1;
	work.body = body;
	work.length = length;
	work.digests = digests;
	work.ndigests = ndigests;
	work.result = result;
	if (!IsRelativeKey(key, false) || !IsRelativeKey(batch_id, true))
	{
		Fail(&work, EINVAL, "make a file", 0, key);
		return;
	}
	NameTemporary(work.temporary, batch_id);

	ReserveDescriptors();
	directory_fd = OpenKeyDirectory(&work);
	if (directory_fd >= 0)
	{
		PutInside(&work, directory_fd);
		close(directory_fd);
	}
	ReleaseDescriptors();
}
