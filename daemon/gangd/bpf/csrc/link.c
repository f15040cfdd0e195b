// SPDX-License-Identifier: Apache-2.0
/* class Link: one attached program or struct_ops; dropping it detaches. */
#include "core.h"

/* Takes over bpf; on failure the attachment is undone. */
PyObject *link_new(struct object *owner, struct bpf_link *bpf)
{
	struct link *self = PyObject_New(struct link, core_state_of(owner)->link_type);

	if (!self) {
		bpf_link__destroy(bpf);
		return NULL;
	}
	self->owner = (struct object *)Py_NewRef((PyObject *)owner);
	self->bpf = bpf;
	self->next = owner->links;
	owner->links = self;
	return (PyObject *)self;
}

/* Off the owner's list first: after this no other thread can reach the bpf_link. */
static struct bpf_link *link_take(struct link *self)
{
	struct bpf_link *bpf = self->bpf;
	struct link **at;

	if (!bpf)
		return NULL;
	for (at = &self->owner->links; *at != self; at = &(*at)->next)
		;
	*at = self->next;
	self->next = NULL;
	self->bpf = NULL;
	return bpf;
}

/*
 * Detaching a scheduler waits for RCU grace periods: without the GIL. The caller
 * holds a reference to the owner; self may be gone when this returns.
 */
int link_detach(struct link *self)
{
	struct object *owner = self->owner;
	struct bpf_link *bpf = link_take(self);
	int err;

	if (!bpf)
		return 0;
	object_hold(owner);
	Py_BEGIN_ALLOW_THREADS
	err = bpf_link__destroy(bpf);
	Py_END_ALLOW_THREADS
	object_release(owner);
	return err;
}

static PyObject *link_destroy(PyObject *op, PyObject *Py_UNUSED(unused))
{
	struct link *self = (struct link *)op;
	CORE_LOG(log);
	int err = link_detach(self);

	if (err)
		return core_raise(core_state_of(self), err, &log, "%U: detach", self->owner->name);
	Py_RETURN_NONE;
}

/* For systemd to keep: the kernel detaches when the last copy is closed. */
static PyObject *link_fileno(PyObject *op, PyObject *Py_UNUSED(unused))
{
	struct link *self = (struct link *)op;

	if (self->bpf)
		return PyLong_FromLong(bpf_link__fd(self->bpf));
	return PyErr_Format(PyExc_ValueError, "%U: the link is destroyed", self->owner->name);
}

/* Detach a link of another process, of which this one has a descriptor; copies of it stay open. */
PyObject *detach_link(PyObject *module, PyObject *arg)
{
	CORE_LOG(log);
	long fd = PyLong_AsLong(arg);
	int err;

	if (fd == -1 && PyErr_Occurred())
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	err = bpf_link_detach((int)fd);
	Py_END_ALLOW_THREADS
	if (err)
		return core_raise(PyModule_GetState(module), err, &log, "link: detach");
	Py_RETURN_NONE;
}

static PyObject *link_enter(PyObject *op, PyObject *Py_UNUSED(unused))
{
	struct link *self = (struct link *)op;

	if (self->bpf)
		return Py_NewRef(op);
	return PyErr_Format(PyExc_ValueError, "%U: the link is destroyed", self->owner->name);
}

static PyObject *link_exit(PyObject *op, PyObject *Py_UNUSED(args))
{
	return link_destroy(op, NULL);
}

static PyObject *link_repr(PyObject *op)
{
	struct link *self = (struct link *)op;

	return PyUnicode_FromFormat("<gangd.bpf.Link of %U, %s>", self->owner->name,
				    self->bpf ? "attached" : "destroyed");
}

static PyObject *link_get_attached(PyObject *op, void *Py_UNUSED(unused))
{
	return PyBool_FromLong(((struct link *)op)->bpf != NULL);
}

static void link_dealloc(PyObject *op)
{
	struct link *self = (struct link *)op;
	CORE_LOG(log);
	struct bpf_link *bpf = link_take(self);

	/* A failed detach has nobody left to hear of it; the kernel frees the link with its fd. */
	if (bpf)
		bpf_link__destroy(bpf);
	Py_DECREF((PyObject *)self->owner);
	core_free_instance(self);
}

static PyMethodDef link_methods[] = {
	{"destroy", link_destroy, METH_NOARGS,
	 "destroy($self, /)\n--\n\nDetach; again is a no-op."},
	{"fileno", link_fileno, METH_NOARGS, "fileno($self, /)\n--\n\nIts descriptor."},
	{"__enter__", link_enter, METH_NOARGS, "__enter__($self, /)\n--\n\n"},
	{"__exit__", link_exit, METH_VARARGS, "__exit__($self, /, *args)\n--\n\n"},
	{0},
};

static PyGetSetDef link_getset[] = {
	{"attached", link_get_attached, NULL, "False once destroyed.", NULL},
	{0},
};

static PyType_Slot link_slots[] = {
	{Py_tp_doc, "An attached program or struct_ops map."},
	{Py_tp_dealloc, link_dealloc},
	{Py_tp_repr, link_repr},
	{Py_tp_methods, link_methods},
	{Py_tp_getset, link_getset},
	{0},
};

PyType_Spec link_spec = {
	.name = "gangd.bpf._core.Link",
	.basicsize = sizeof(struct link),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = link_slots,
};
