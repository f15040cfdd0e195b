// SPDX-License-Identifier: Apache-2.0
/* class Map: all keys, all items, while others insert and delete. */
#include "core.h"

#include <errno.h>
#include <string.h>

#define BATCH_BYTES (1u << 20)

/* One round of BPF_MAP_LOOKUP_BATCH. */
struct batch {
	char *keys;
	char *values;
	char *cursor[2]; /* opaque to us; [0] is where the kernel continues */
	__u32 room;	 /* entries that fit */
	bool started;
};

/*
 * Walk with BPF_MAP_GET_NEXT_KEY into a dict of keys. When the key we stand on is deleted by
 * somebody else a hash map starts over from its first key: the dict drops what was seen,
 * and the number of steps is bounded so that a busy deleter cannot keep us for ever.
 */
static int walk_keys(struct map *self, PyObject *seen, char *key)
{
	__u64 entries = bpf_map__max_entries(self->bpf), steps = 4 * entries + 16;
	size_t size = bpf_map__key_size(self->bpf);
	char *next = key + size;
	bool first = true;
	PyObject *bytes;
	int err;

	for (; steps && (__u64)PyDict_Size(seen) < entries; steps--, first = false) {
		err = bpf_map__get_next_key(self->bpf, first ? NULL : key, next, size);
		if (err)
			return err == -ENOENT ? 0 : err;
		memcpy(key, next, size);
		bytes = PyBytes_FromStringAndSize(key, (Py_ssize_t)size);
		err = bytes ? PyDict_SetItem(seen, bytes, Py_None) : -1;
		Py_XDECREF(bytes);
		if (err)
			return 0; /* the exception is set */
	}
	return 0;
}

PyObject *map_keys(PyObject *op, PyObject *Py_UNUSED(unused))
{
	struct map *self = (struct map *)op;
	PyObject *seen, *keys = NULL;
	char *room;
	int err = 0;
	CORE_LOG(log);

	if (!object_need(self->owner, OBJECT_LOADED))
		return NULL;
	seen = PyDict_New();
	room = PyMem_Malloc(2 * (size_t)bpf_map__key_size(self->bpf));
	if (!room)
		PyErr_NoMemory();
	else if (seen)
		err = walk_keys(self, seen, room);
	if (err)
		map_raise(self, err, &log, "next key");
	if (!PyErr_Occurred())
		keys = PyDict_Keys(seen);
	PyMem_Free(room);
	Py_XDECREF(seen);
	return keys;
}

/* Takes over both references. */
static bool append_pair(PyObject *list, PyObject *key, PyObject *value)
{
	PyObject *pair = key && value ? PyTuple_Pack(2, key, value) : NULL;
	bool done = pair && !PyList_Append(list, pair);

	Py_XDECREF(pair);
	Py_XDECREF(key);
	Py_XDECREF(value);
	return done;
}

/* For map types and kernels without batches; a key deleted meanwhile is left out. */
static PyObject *items_one_by_one(struct map *self, __u64 flags)
{
	PyObject *keys = map_keys((PyObject *)self, NULL), *items, *key, *value;
	Py_ssize_t i;

	items = keys ? PyList_New(0) : NULL;
	for (i = 0; items && i < PyList_Size(keys); i++) {
		key = PyList_GetItem(keys, i);
		value = map_lookup_bytes(self, PyBytes_AsString(key), flags);
		if (value == Py_None)
			Py_DECREF(value);
		else if (!append_pair(items, Py_NewRef(key), value))
			Py_CLEAR(items);
	}
	Py_XDECREF(keys);
	return items;
}

static void batch_free(struct batch *batch)
{
	PyMem_Free(batch->keys);
	PyMem_Free(batch->values);
	batch->keys = batch->values = NULL;
}

static int batch_alloc(struct batch *batch, size_t key_size, size_t value_size, __u32 room)
{
	batch_free(batch);
	batch->room = room;
	batch->keys = PyMem_Malloc(key_size * room);
	batch->values = PyMem_Malloc(value_size * room);
	return batch->keys && batch->values ? 0 : -ENOMEM;
}

static bool append_batch(PyObject *items, const struct batch *batch, __u32 count, size_t key_size,
			 size_t value_size)
{
	__u32 i;

	for (i = 0; i < count; i++) {
		if (!append_pair(items,
				 PyBytes_FromStringAndSize(batch->keys + i * key_size,
							   (Py_ssize_t)key_size),
				 PyBytes_FromStringAndSize(batch->values + i * value_size,
							   (Py_ssize_t)value_size)))
			return false;
	}
	return true;
}

/* 1: more to come; 0: the end, or an exception is set; negative: errno. */
static int batch_step(struct map *self, struct batch *batch, PyObject *items, size_t value_size,
		      __u64 flags)
{
	LIBBPF_OPTS(bpf_map_batch_opts, opts, .elem_flags = flags);
	__u32 key_size = bpf_map__key_size(self->bpf), count = batch->room;
	char *swap;
	int err;

	err = bpf_map_lookup_batch(bpf_map__fd(self->bpf), batch->started ? batch->cursor[0] : NULL,
				   batch->cursor[1], batch->keys, batch->values, &count, &opts);
	/* One bucket of the hash table holds more than a whole batch. */
	if (err == -ENOSPC && batch->room <= bpf_map__max_entries(self->bpf))
		return batch_alloc(batch, key_size, value_size, 2 * batch->room) ?: 1;
	if (err && err != -ENOENT)
		return err;
	if (!append_batch(items, batch, count, key_size, value_size))
		return 0;
	swap = batch->cursor[0];
	batch->cursor[0] = batch->cursor[1];
	batch->cursor[1] = swap;
	batch->started = true;
	return err ? 0 : 1;
}

static int items_batched(struct map *self, PyObject *items, size_t value_size, __u64 flags,
			 bool *started)
{
	size_t key_size = bpf_map__key_size(self->bpf);
	size_t cursor_size = key_size < 8 ? 8 : key_size;
	__u32 room = BATCH_BYTES / (key_size + value_size + 1) + 1;
	char *cursors = PyMem_Calloc(2, cursor_size);
	struct batch batch = {0};
	int err;

	if (room > bpf_map__max_entries(self->bpf))
		room = bpf_map__max_entries(self->bpf);
	err = cursors ? batch_alloc(&batch, key_size, value_size, room) : -ENOMEM;
	if (!err) {
		batch.cursor[0] = cursors;
		batch.cursor[1] = cursors + cursor_size;
		do
			err = batch_step(self, &batch, items, value_size, flags);
		while (err > 0);
	}
	*started = batch.started;
	batch_free(&batch);
	PyMem_Free(cursors);
	return err;
}

static bool no_batches(int err)
{
	return err == -EINVAL || err == -EOPNOTSUPP || err == -KERNEL_ENOTSUPP;
}

PyObject *map_items(PyObject *op, PyObject *args, PyObject *kwargs)
{
	static char *keywords[] = {"flags", NULL};
	struct map *self = (struct map *)op;
	unsigned long long flags = 0;
	PyObject *items;
	size_t value_size;
	bool started;
	int err;
	CORE_LOG(log);

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|K:items", keywords, &flags) ||
	    !object_need(self->owner, OBJECT_LOADED))
		return NULL;
	value_size = map_value_bytes(self);
	items = PyErr_Occurred() ? NULL : PyList_New(0);
	if (!items)
		return NULL;
	err = items_batched(self, items, value_size, flags, &started);
	if (!err && !PyErr_Occurred())
		return items;
	Py_DECREF(items);
	if (!started && no_batches(err))
		return items_one_by_one(self, flags);
	return err ? map_raise(self, err, &log, "lookup batch") : NULL;
}
