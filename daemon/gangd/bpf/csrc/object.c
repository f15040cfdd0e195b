// SPDX-License-Identifier: Apache-2.0
/* class Object: one .bpf.o, from open to close. */
#include <malloc.h>
#include "core.h"

#include <errno.h>
#include <string.h>

/* Our types cannot be subclassed, so the type of any instance is the one with our module. */
struct core_state *core_state_of(void *self)
{
	return PyType_GetModuleState(Py_TYPE((PyObject *)self));
}

void core_free_instance(void *self)
{
	PyTypeObject *type = Py_TYPE((PyObject *)self);

	PyObject_Free(self);
	Py_DECREF((PyObject *)type);
}

/* ValueError: the caller's order is wrong. EBUSY: another thread is not done yet. */
static bool object_wrong_state(struct object *self)
{
	static const char *const why[] = {
		[OBJECT_OPEN] = "is not loaded",
		[OBJECT_LOADED] = "is loaded already",
		[OBJECT_FAILED] = "failed to load; open it again",
		[OBJECT_CLOSED] = "is closed",
	};

	if (self->state == OBJECT_LOADING)
		core_raise(core_state_of(self), EBUSY, NULL, "%U is being loaded", self->name);
	else
		PyErr_Format(PyExc_ValueError, "%U %s", self->name, why[self->state]);
	return false;
}

bool object_need(struct object *self, enum object_state wanted)
{
	return self->state == wanted || object_wrong_state(self);
}

bool object_not_closed(struct object *self)
{
	if (self->state == OBJECT_CLOSED || self->state == OBJECT_LOADING)
		return object_wrong_state(self);
	return true;
}

/* Around every stretch without the GIL: the bpf_object outlives a close() from another thread. */
void object_hold(struct object *self)
{
	self->users++;
}

void object_release(struct object *self)
{
	if (--self->users || self->state != OBJECT_CLOSED)
		return;
	bpf_object__close(self->bpf);
	self->bpf = NULL;
}

struct bpf_program *object_find_program(struct object *self, const char *name)
{
	struct bpf_program *prog = bpf_object__find_program_by_name(self->bpf, name);

	if (!prog)
		core_raise(core_state_of(self), ENOENT, NULL, "%U: program '%s'", self->name, name);
	return prog;
}

struct bpf_map *object_find_map(struct object *self, const char *name)
{
	struct bpf_map *map = bpf_object__find_map_by_name(self->bpf, name);

	if (!map)
		core_raise(core_state_of(self), ENOENT, NULL, "%U: map '%s'", self->name, name);
	return map;
}

static bool object_open(struct object *self, const char *path, const char *name)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .object_name = name);
	CORE_LOG(log);

	self->bpf = bpf_object__open_file(path, &opts);
	if (!self->bpf)
		return core_raise(core_state_of(self), errno, &log, "%s: open", path);
	self->state = OBJECT_OPEN;
	self->name = PyUnicode_FromString(bpf_object__name(self->bpf));
	return self->name != NULL;
}

static PyObject *object_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *keywords[] = {"path", "name", NULL};
	const char *name = NULL;
	PyObject *path = NULL;
	struct object *self;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|z:Object", keywords,
					 PyUnicode_FSConverter, &path, &name))
		return NULL;
	self = (struct object *)PyType_GenericAlloc(type, 0); /* zeroed */
	if (self) {
		self->state = OBJECT_CLOSED;
		if (!object_open(self, PyBytes_AsString(path), name))
			Py_CLEAR(self);
	}
	Py_DECREF(path);
	return (PyObject *)self;
}

static bool append(PyObject *names, const char *text)
{
	PyObject *name = PyUnicode_FromString(text);
	bool done = name && !PyList_Append(names, name);

	Py_XDECREF(name);
	return done;
}

static PyObject *object_programs(PyObject *op, PyObject *Py_UNUSED(unused))
{
	struct object *self = (struct object *)op;
	PyObject *names = object_not_closed(self) ? PyList_New(0) : NULL;
	struct bpf_program *prog;

	if (!names)
		return NULL;
	bpf_object__for_each_program(prog, self->bpf) {
		if (!append(names, bpf_program__name(prog))) {
			Py_CLEAR(names);
			break;
		}
	}
	return names;
}

static PyObject *object_maps(PyObject *op, PyObject *Py_UNUSED(unused))
{
	struct object *self = (struct object *)op;
	PyObject *names = object_not_closed(self) ? PyList_New(0) : NULL;
	struct bpf_map *map;

	if (!names)
		return NULL;
	bpf_object__for_each_map(map, self->bpf) {
		if (!append(names, bpf_map__name(map))) {
			Py_CLEAR(names);
			break;
		}
	}
	return names;
}

static PyObject *object_set_autoload(PyObject *op, PyObject *args)
{
	struct object *self = (struct object *)op;
	struct bpf_program *prog;
	const char *name;
	int on, err;
	CORE_LOG(log);

	if (!PyArg_ParseTuple(args, "sp:set_autoload", &name, &on) ||
	    !object_need(self, OBJECT_OPEN))
		return NULL;
	prog = object_find_program(self, name);
	if (!prog)
		return NULL;
	err = bpf_program__set_autoload(prog, on);
	if (err)
		return core_raise(core_state_of(self), err, &log, "%U: autoload of program '%s'",
				  self->name, name);
	Py_RETURN_NONE;
}

static PyObject *object_set_max_entries(PyObject *op, PyObject *args)
{
	struct object *self = (struct object *)op;
	struct bpf_map *map;
	const char *name;
	unsigned int entries;
	long long number;
	int err;
	CORE_LOG(log);

	if (!PyArg_ParseTuple(args, "sL:set_max_entries", &name, &number) ||
	    !object_need(self, OBJECT_OPEN))
		return NULL;
	entries = (unsigned int)number;
	if (number <= 0 || entries != number)
		return PyErr_Format(PyExc_ValueError, "max_entries of map '%s': %lld", name,
				    number);
	map = object_find_map(self, name);
	if (!map)
		return NULL;
	err = bpf_map__set_max_entries(map, entries);
	if (err)
		return core_raise(core_state_of(self), err, &log, "%U: max_entries of map '%s'",
				  self->name, name);
	Py_RETURN_NONE;
}

static PyObject *object_load(PyObject *op, PyObject *Py_UNUSED(unused))
{
	struct object *self = (struct object *)op;
	CORE_LOG(log);
	int err;

	if (!object_need(self, OBJECT_OPEN))
		return NULL;
	self->state = OBJECT_LOADING;
	Py_BEGIN_ALLOW_THREADS
	err = bpf_object__load(self->bpf);
#ifdef __GLIBC__
	malloc_trim(0); /* libbpf had the types of the kernel and its modules in memory */
#endif
	Py_END_ALLOW_THREADS
	self->state = err ? OBJECT_FAILED : OBJECT_LOADED;
	if (err)
		return core_raise(core_state_of(self), err, &log, "%U: load", self->name);
	Py_RETURN_NONE;
}

static PyObject *new_map(struct object *owner, struct bpf_map *bpf)
{
	struct map *self = PyObject_New(struct map, core_state_of(owner)->map_type);

	if (!self)
		return NULL;
	self->owner = (struct object *)Py_NewRef((PyObject *)owner);
	self->bpf = bpf;
	memset(&self->records, 0, sizeof(self->records));
	return (PyObject *)self;
}

static PyObject *object_map(PyObject *op, PyObject *arg)
{
	struct object *self = (struct object *)op;
	struct bpf_map *map;
	const char *name;

	name = PyUnicode_AsUTF8AndSize(arg, NULL);
	if (!name || !object_not_closed(self))
		return NULL;
	map = object_find_map(self, name);
	return map ? new_map(self, map) : NULL;
}

static PyObject *object_close(PyObject *op, PyObject *Py_UNUSED(unused))
{
	struct object *self = (struct object *)op;
	int err, first_err = 0;
	CORE_LOG(log);

	if (self->state == OBJECT_CLOSED)
		Py_RETURN_NONE;
	if (self->state == OBJECT_LOADING)
		return core_raise(core_state_of(self), EBUSY, NULL, "%U: close", self->name);
	object_hold(self);
	self->state = OBJECT_CLOSED;
	while (self->links) {
		err = link_detach(self->links);
		first_err = first_err ? first_err : err;
	}
	object_release(self);
	if (first_err)
		return core_raise(core_state_of(self), first_err, &log, "%U: detach", self->name);
	Py_RETURN_NONE;
}

static PyObject *object_enter(PyObject *op, PyObject *Py_UNUSED(unused))
{
	return object_not_closed((struct object *)op) ? Py_NewRef(op) : NULL;
}

static PyObject *object_exit(PyObject *op, PyObject *Py_UNUSED(args))
{
	return object_close(op, NULL);
}

static void object_dealloc(PyObject *op)
{
	struct object *self = (struct object *)op;

	/* No link is left: each would hold a reference to us. */
	bpf_object__close(self->bpf);
	Py_XDECREF(self->name);
	core_free_instance(self);
}

static PyObject *object_repr(PyObject *op)
{
	static const char *const words[] = {
		[OBJECT_OPEN] = "open",	    [OBJECT_LOADING] = "loading",
		[OBJECT_LOADED] = "loaded", [OBJECT_FAILED] = "failed",
		[OBJECT_CLOSED] = "closed",
	};
	struct object *self = (struct object *)op;

	return PyUnicode_FromFormat("<gangd.bpf.Object %U, %s>", self->name, words[self->state]);
}

static PyObject *object_get_name(PyObject *op, void *Py_UNUSED(unused))
{
	return Py_NewRef(((struct object *)op)->name);
}

static PyMethodDef object_methods[] = {
	{"programs", object_programs, METH_NOARGS, "programs($self, /)\n--\n\nNames."},
	{"maps", object_maps, METH_NOARGS, "maps($self, /)\n--\n\nNames."},
	{"set_autoload", object_set_autoload, METH_VARARGS,
	 "set_autoload($self, prog, on, /)\n--\n\nWhether load() loads this program."},
	{"set_max_entries", object_set_max_entries, METH_VARARGS,
	 "set_max_entries($self, map, entries, /)\n--\n\nResize a map before load()."},
	{"rodata", object_rodata, METH_NOARGS, "rodata($self, /)\n--\n\nBytes of .rodata."},
	{"set_rodata", object_set_rodata, METH_O,
	 "set_rodata($self, data, /)\n--\n\nReplace .rodata before load()."},
	{"rodata_var", object_rodata_var, METH_O,
	 "rodata_var($self, name, /)\n--\n\n(offset, size) of a variable in .rodata."},
	{"set_const", object_set_const, METH_VARARGS,
	 "set_const($self, name, value, /)\n--\n\nSet a const volatile integer before load()."},
	{"set_struct_ops", object_set_struct_ops, METH_VARARGS,
	 "set_struct_ops($self, map, member, value, /)\n--\n\nSet a member before load()."},
	{"share_map", object_share_map, METH_O,
	 "share_map($self, name, /)\n--\n\nUse a loaded map that is like it; before load()."},
	{"load", object_load, METH_NOARGS, "load($self, /)\n--\n\nCreate maps, verify programs."},
	{"map", object_map, METH_O, "map($self, name, /)\n--\n\nThe Map of that name."},
	{"attach", object_attach, METH_O, "attach($self, prog, /)\n--\n\nAttach a program."},
	{"attach_struct_ops", object_attach_struct_ops, METH_O,
	 "attach_struct_ops($self, map, /)\n--\n\nAttach a struct_ops map."},
	{"run", object_run, METH_VARARGS,
	 "run($self, prog, ctx=b'', /)\n--\n\nRun a SEC(\"syscall\") program; its return value."},
	{"close", object_close, METH_NOARGS, "close($self, /)\n--\n\nDetach links, free all."},
	{"__enter__", object_enter, METH_NOARGS, "__enter__($self, /)\n--\n\n"},
	{"__exit__", object_exit, METH_VARARGS, "__exit__($self, /, *args)\n--\n\n"},
	{0},
};

static PyGetSetDef object_getset[] = {
	{"name", object_get_name, NULL, "Name of the object, for messages.", NULL},
	{0},
};

static PyType_Slot object_slots[] = {
	{Py_tp_doc, "Object(path, name=None)\n--\n\nA BPF object file (.bpf.o)."},
	{Py_tp_new, object_new},
	{Py_tp_dealloc, object_dealloc},
	{Py_tp_repr, object_repr},
	{Py_tp_methods, object_methods},
	{Py_tp_getset, object_getset},
	{0},
};

PyType_Spec object_spec = {
	.name = "gangd.bpf._core.Object",
	.basicsize = sizeof(struct object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = object_slots,
};
