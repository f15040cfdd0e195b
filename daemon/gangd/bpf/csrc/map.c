// SPDX-License-Identifier: Apache-2.0
/* class Map: bytes in, bytes out. */
#include "core.h"

#include <errno.h>

void *map_raise(struct map *self, int err, const struct core_log *log, const char *action)
{
	return core_raise(core_state_of(self), err, log, "%U: map '%s': %s", self->owner->name,
			  bpf_map__name(self->bpf), action);
}

static bool is_per_cpu(const struct bpf_map *map)
{
	switch (bpf_map__type(map)) {
	case BPF_MAP_TYPE_PERCPU_HASH:
	case BPF_MAP_TYPE_PERCPU_ARRAY:
	case BPF_MAP_TYPE_LRU_PERCPU_HASH:
	case BPF_MAP_TYPE_PERCPU_CGROUP_STORAGE:
		return true;
	default:
		return false;
	}
}

/* Return the bytes that bpf() moves for one value; 0 and an exception if the CPUs are unknown. */
size_t map_value_bytes(struct map *self)
{
	size_t size = bpf_map__value_size(self->bpf);
	int cpus;

	if (!is_per_cpu(self->bpf))
		return size;
	cpus = libbpf_num_possible_cpus();
	if (cpus < 0) {
		map_raise(self, cpus, NULL, "possible CPUs");
		return 0;
	}
	return (size + 7) / 8 * 8 * (size_t)cpus;
}

static bool check_size(struct map *self, const char *what, Py_ssize_t have, size_t want)
{
	if ((size_t)have == want)
		return true;
	PyErr_Format(PyExc_ValueError, "%U: map '%s': %s is %zu bytes, %zd given",
		     self->owner->name, bpf_map__name(self->bpf), what, want, have);
	return false;
}

static bool check_key(struct map *self, const Py_buffer *key)
{
	return object_need(self->owner, OBJECT_LOADED) &&
	       check_size(self, "key", key->len, bpf_map__key_size(self->bpf));
}

/* None when the key is not there. */
PyObject *map_lookup_bytes(struct map *self, const void *key, __u64 flags)
{
	size_t size = map_value_bytes(self);
	PyObject *value =
		PyErr_Occurred() ? NULL : PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
	int err;
	CORE_LOG(log);

	if (!value)
		return NULL;
	err = bpf_map__lookup_elem(self->bpf, key, bpf_map__key_size(self->bpf),
				   PyBytes_AsString(value), size, flags);
	if (!err)
		return value;
	Py_DECREF(value);
	if (err == -ENOENT)
		Py_RETURN_NONE;
	return map_raise(self, err, &log, "lookup");
}

static PyObject *map_lookup(PyObject *op, PyObject *args, PyObject *kwargs)
{
	static char *keywords[] = {"", "flags", NULL};
	struct map *self = (struct map *)op;
	unsigned long long flags = 0;
	PyObject *value = NULL;
	Py_buffer key;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*|K:lookup", keywords, &key, &flags))
		return NULL;
	if (check_key(self, &key))
		value = map_lookup_bytes(self, key.buf, flags);
	PyBuffer_Release(&key);
	return value;
}

static bool update_bytes(struct map *self, const Py_buffer *key, const Py_buffer *value,
			 __u64 flags)
{
	size_t size;
	int err;
	CORE_LOG(log);

	if (!check_key(self, key))
		return false;
	size = map_value_bytes(self);
	if (PyErr_Occurred() || !check_size(self, "value", value->len, size))
		return false;
	err = bpf_map__update_elem(self->bpf, key->buf, (size_t)key->len, value->buf, size, flags);
	if (err)
		map_raise(self, err, &log, "update");
	return !err;
}

static PyObject *map_update(PyObject *op, PyObject *args, PyObject *kwargs)
{
	static char *keywords[] = {"", "", "flags", NULL};
	unsigned long long flags = 0;
	Py_buffer key, value;
	bool done;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*y*|K:update", keywords, &key, &value,
					 &flags))
		return NULL;
	done = update_bytes((struct map *)op, &key, &value, flags);
	PyBuffer_Release(&key);
	PyBuffer_Release(&value);
	return done ? Py_NewRef(Py_None) : NULL;
}

static PyObject *map_delete(PyObject *op, PyObject *arg)
{
	struct map *self = (struct map *)op;
	PyObject *done = NULL;
	Py_buffer key;
	int err;
	CORE_LOG(log);

	if (PyObject_GetBuffer(arg, &key, PyBUF_SIMPLE))
		return NULL;
	if (check_key(self, &key)) {
		err = bpf_map__delete_elem(self->bpf, key.buf, (size_t)key.len, 0);
		if (err && err != -ENOENT)
			map_raise(self, err, &log, "delete");
		else
			done = PyBool_FromLong(!err);
	}
	PyBuffer_Release(&key);
	return done;
}

static PyObject *map_get_name(PyObject *op, void *Py_UNUSED(unused))
{
	struct map *self = (struct map *)op;

	return object_not_closed(self->owner) ? PyUnicode_FromString(bpf_map__name(self->bpf)) :
						NULL;
}

static PyObject *map_get_type(PyObject *op, void *Py_UNUSED(unused))
{
	struct map *self = (struct map *)op;
	const char *word;

	if (!object_not_closed(self->owner))
		return NULL;
	word = libbpf_bpf_map_type_str(bpf_map__type(self->bpf));
	return PyUnicode_FromString(word ? word : "unknown");
}

/* key_size, value_size and max_entries have one getter, told apart by libbpf's own accessor. */
typedef __u32 (*map_number)(const struct bpf_map *map);

struct number_of {
	map_number get;
};

static struct number_of key_size_of = {bpf_map__key_size};
static struct number_of value_size_of = {bpf_map__value_size};
static struct number_of max_entries_of = {bpf_map__max_entries};

static PyObject *map_get_number(PyObject *op, void *closure)
{
	struct map *self = (struct map *)op;
	const struct number_of *number = closure;

	return object_not_closed(self->owner) ? PyLong_FromUnsignedLong(number->get(self->bpf)) :
						NULL;
}

static PyObject *map_get_fd(PyObject *op, void *Py_UNUSED(unused))
{
	struct map *self = (struct map *)op;

	return object_need(self->owner, OBJECT_LOADED) ? PyLong_FromLong(bpf_map__fd(self->bpf)) :
							 NULL;
}

static PyObject *map_repr(PyObject *op)
{
	struct map *self = (struct map *)op;

	if (self->owner->state == OBJECT_CLOSED)
		return PyUnicode_FromFormat("<gangd.bpf.Map of %U, closed>", self->owner->name);
	return PyUnicode_FromFormat("<gangd.bpf.Map %s of %U>", bpf_map__name(self->bpf),
				    self->owner->name);
}

static void map_dealloc(PyObject *op)
{
	map_forget_records((struct map *)op);
	Py_DECREF((PyObject *)((struct map *)op)->owner);
	core_free_instance(op);
}

#define KEYWORDS(fn) ((PyCFunction)(void (*)(void))(fn))

static PyMethodDef map_methods[] = {
	{"lookup", KEYWORDS(map_lookup), METH_VARARGS | METH_KEYWORDS,
	 "lookup($self, key, /, flags=0)\n--\n\nThe value, or None."},
	{"update", KEYWORDS(map_update), METH_VARARGS | METH_KEYWORDS,
	 "update($self, key, value, /, flags=0)\n--\n\nCreate or replace an entry."},
	{"delete", map_delete, METH_O, "delete($self, key, /)\n--\n\nFalse when it was not there."},
	{"keys", map_keys, METH_NOARGS, "keys($self, /)\n--\n\nAll keys."},
	{"items", KEYWORDS(map_items), METH_VARARGS | METH_KEYWORDS,
	 "items($self, /, flags=0)\n--\n\nAll (key, value) pairs."},
	{"drain", map_drain, METH_NOARGS, "drain($self, /)\n--\n\nNew records of a ring buffer."},
	{0},
};

static PyGetSetDef map_getset[] = {
	{"name", map_get_name, NULL, NULL, NULL},
	{"type", map_get_type, NULL, NULL, NULL},
	{"key_size", map_get_number, NULL, NULL, &key_size_of},
	{"value_size", map_get_number, NULL, NULL, &value_size_of},
	{"max_entries", map_get_number, NULL, NULL, &max_entries_of},
	{"fd", map_get_fd, NULL, NULL, NULL},
	{0},
};

static PyType_Slot map_slots[] = {
	{Py_tp_doc, "A map of an Object."}, {Py_tp_dealloc, map_dealloc}, {Py_tp_repr, map_repr},
	{Py_tp_methods, map_methods},	    {Py_tp_getset, map_getset},	  {0},
};

PyType_Spec map_spec = {
	.name = "gangd.bpf._core.Map",
	.basicsize = sizeof(struct map),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = map_slots,
};
